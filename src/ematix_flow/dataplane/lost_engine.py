"""Detects that a Spark Connect server, or the JVM, ended in the middle of a call."""

from __future__ import annotations

import traceback

from ematix_flow.foundation.errors import EngineLost

# Errors that the server reports arrive as Spark exceptions; these are the errors of the gRPC connection itself.
_LOST = ("RetriesExceeded", "RETRIES_EXCEEDED", "_InactiveRpcError", "_MultiThreadedRendezvous")


def lost_engine_error(exc: BaseException) -> EngineLost | None:
    """Return the error to raise when the engine is gone, None when the exception means something else."""
    if not any(word in f"{type(exc).__name__} {str(exc)[:200]}" for word in _LOST) and not _is_connection_dead(exc):
        return None
    return engine_lost_error()


def engine_lost_error() -> EngineLost:
    """Return the error of a run whose engine has ended."""
    return EngineLost(
        "the Spark engine went away in the middle of the run",
        hint="run it again: nothing is lost or doubled; flow engine status shows the engines that are there",
    )


def _is_connection_dead(exc: BaseException) -> bool:
    """Return whether the JVM no longer responds: a py4j network error, or a socket error raised inside py4j."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    if isinstance(exc, Py4JNetworkError):
        return True
    frames = traceback.walk_tb(exc.__traceback__) if isinstance(exc, (ConnectionError, EOFError)) else ()
    return any(str(frame.f_globals.get("__name__")).startswith("py4j.") for frame, _ in frames)
