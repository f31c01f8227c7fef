"""The handler of an AWS Lambda function that executes the run of a LambdaExecutor's event."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.errors import ConfigError

_log = logging.getLogger(__name__)
GRACE_SECONDS = 20.0
"""Seconds before the end of the invocation at which the worker receives SIGTERM."""
_LAST_SECONDS = 3.0


def handler(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
    """Run `flow` with the event's arguments in a separate process; return its exit code.

    A failed run is no error of the function: it is in the run log, and the pipeline's own retries apply.
    """
    words, variables = _read_event(event)
    process = subprocess.Popen(  # noqa: S603  this interpreter, no shell
        [sys.executable, "-m", "ematix_flow.cli", *words],
        env={**_environment(), **variables},
        stdin=subprocess.DEVNULL,
    )
    code = _await_worker(process, context)
    return {"pipeline": event.get("pipeline_name", ""), "run_id": event.get("run_id", ""), "exit_code": code}


def _read_event(event: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    words, variables = event.get("argv"), event.get("env") or {}
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ConfigError(
            "the event has no argv", hint="only `flow scheduler --executor lambda://…` writes such events"
        )
    if words[0] != "run":
        raise ConfigError(f"the event asks for `flow {words[0]}`", hint="a worker only runs pipelines: `flow run`")
    return words, {str(name): str(value) for name, value in dict(variables).items()}


def _environment() -> dict[str, str]:
    """Return this process's environment, with a writable HOME, and the Python path that Lambda set up."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    if not os.access(os.path.expanduser("~"), os.W_OK):
        environment["HOME"] = tempfile.gettempdir()
    return environment


def _await_worker(process: subprocess.Popen[bytes], context: Any) -> int:
    """Wait for the worker; send SIGTERM shortly before the time limit, so that it rolls back and records the run."""
    left = _seconds_left(context)
    try:
        return process.wait(None if left is None else max(0.0, left - GRACE_SECONDS))
    except subprocess.TimeoutExpired:
        _log.warning("Lambda's time limit comes near: the run is asked to end")
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(max(0.0, (_seconds_left(context) or 0.0) - _LAST_SECONDS))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _seconds_left(context: Any) -> float | None:
    ask = getattr(context, "get_remaining_time_in_millis", None)
    return ask() / 1000 if callable(ask) else None
