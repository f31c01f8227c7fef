"""The early start of a command's JVM, before any other import, if the same command started one last time.

A command needs half a second for its imports, and Spark's JVM about as long until it listens. The command line of the
JVM is the same each time, so it is stored, and started first next time. This is only an optimisation: a JVM that does
not match the one the session needs, or that is not needed, is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ematix_flow.foundation.cache import cache_home
from ematix_flow.foundation.warm_engine import build_identity

SWITCH = "EMATIX_FLOW_EARLY_JVM"  # "off" disables it
COMMANDS = ("run", "run-due", "preview", "validate", "dry-run", "transform")
CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_KEPT = 100  # commands: a command line with a date in it is never repeated
# Variables that the session sets for its JVM. A session that sets others, through a module of the user's, is not
# started early: they may be secrets, which must not be written to disk.
_OURS = {
    "JAVA_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "PYTHONHASHSEED", "PYTHONPATH", "SPARK_CONNECT_MODE", "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS", "SPARK_LOCAL_IP",
}  # fmt: skip


@dataclass(frozen=True)
class JvmProcess:
    """A JVM whose gateway writes its port and secret into `file` once it listens."""

    process: subprocess.Popen[bytes]
    file: Path

    def end(self) -> None:
        """Kill the process and remove its file."""
        self.process.kill()
        self.process.wait()
        self.remove_file()

    def remove_file(self) -> None:
        """Remove the file; no other process reads it."""
        shutil.rmtree(self.file.parent, ignore_errors=True)


@dataclass
class _Command:
    """The command of this process: the path of its record, and the JVM that was started for it."""

    record: Path | None = None
    variables: dict[str, str] | None = None
    started: JvmProcess | None = None
    command: list[str] | None = None
    environment: dict[str, str] | None = None


_command = _Command()


def start_early(arguments: Sequence[str]) -> None:
    """Start the JVM that this command started last time; a later call of `launch` returns it."""
    if (
        os.name != "posix"
        or not arguments
        or arguments[0] not in COMMANDS
        or os.environ.get(SWITCH, "").lower() == "off"
    ):
        return
    _command.record, _command.variables = _record_of(arguments), dict(os.environ)
    try:
        kept = json.loads(_command.record.read_text(encoding="utf-8"))
        command, ours = [str(word) for word in kept["command"]], {str(k): str(v) for k, v in kept["variables"].items()}
        if kept["build"] != build_identity() or not Path(command[0]).exists():
            return
        environment = {**_command.variables, **ours}
        with log_file().open("ab") as log:
            _command.started = _launch(command, environment, log.fileno())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    _command.command, _command.environment = command, environment
    atexit.register(_end_unused)


def launch(command: list[str], environment: dict[str, str]) -> JvmProcess:
    """Return a JVM with this command and environment: the one that was started early, or a new one.

    The command is stored for the next process with the same arguments in this folder. Raises OSError.
    """
    early, _command.started = _command.started, None
    if early is not None and early.process.poll() is None:
        if (_command.command, _command.environment) == (command, environment):
            return early
        early.end()
    _remember_command(command, environment)
    return _launch(command, environment, None)


@functools.cache
def log_file() -> Path:
    """Return the log file of this process's JVM; cached, because a running JVM cannot change its output file."""
    folder = Path(os.environ.get("EMATIX_FLOW_LOGS_DIR") or Path.home() / ".ematix-flow" / "logs")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir())
    return folder / f"spark-{os.getpid()}.log"


def _launch(command: list[str], environment: Mapping[str, str], log: int | None) -> JvmProcess:
    file = Path(tempfile.mkdtemp(prefix="ematix-flow-gateway-")) / "gateway"
    try:
        process = subprocess.Popen(  # noqa: S603  composed by Spark's launcher
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**environment, CONNECTION_FILE: str(file)},
            preexec_fn=_leave_signals_to_the_driver,
        )  # fmt: skip
    except BaseException:
        shutil.rmtree(file.parent, ignore_errors=True)
        raise
    return JvmProcess(process, file)


def _leave_signals_to_the_driver() -> None:
    """Ignore Ctrl-C and SIGTERM, which reach the whole process group: the driver handles them and stops the JVM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end_unused() -> None:
    """Kill a JVM that was not needed, and delete its record so that the next command starts none early."""
    early, _command.started = _command.started, None
    if early is not None:
        early.end()
        if _command.record is not None:
            _command.record.unlink(missing_ok=True)


def _record_of(arguments: Sequence[str]) -> Path:
    """Return the path of the record of this command, folder, interpreter and kind of terminal."""
    key = json.dumps([list(arguments), os.getcwd(), sys.executable, sys.stdin is not None and sys.stdin.isatty()])
    return cache_home() / "early" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json"


def _remember_command(command: list[str], environment: Mapping[str, str]) -> None:
    """Store the command, unless its environment differs in other variables than those of `_OURS`."""
    record, before = _command.record, _command.variables
    if record is None or before is None:
        return
    ours = {name: value for name, value in environment.items() if before.get(name) != value}
    if not set(ours) <= _OURS or not set(before) <= set(environment):
        return
    record_data = {"build": build_identity(), "command": command, "variables": ours}
    part = record.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):  # without a record, the JVM starts when it is needed
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.write_text(json.dumps(record_data), encoding="utf-8")
        part.chmod(0o600)
        part.replace(record)
        for old in sorted(record.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
