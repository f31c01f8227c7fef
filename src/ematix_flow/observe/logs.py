"""The printed and logged output of a run, captured in one masked file per run; and masking for all log handlers."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ematix_flow.foundation.redact import MaskSecrets, mask, record_message

DIRECTORY_VARIABLE = "EMATIX_FLOW_LOGS_DIR"
CAPTURE_VARIABLE = "EMATIX_FLOW_CAPTURE_LOGS"
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


def logs_dir() -> Path:
    """Return the folder of captured logs: EMATIX_FLOW_LOGS_DIR, else a folder in the user's home."""
    own = os.environ.get(DIRECTORY_VARIABLE)
    return Path(own).expanduser() if own else Path.home() / ".ematix-flow" / "logs"


def is_capture_wanted() -> bool:
    """Return whether EMATIX_FLOW_CAPTURE_LOGS is set."""
    return os.environ.get(CAPTURE_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def log_file(run_id: str) -> Path:
    """Return the log file of one run; it is inside the folder, whatever the id is."""
    name = _UNSAFE.sub("_", run_id).lstrip(".") or "_"
    return logs_dir() / f"{name[:200]}.log"


@contextlib.contextmanager
def capture_pipeline_logs(run_id: str) -> Iterator[Path | None]:
    """Copy output printed and logged in the block to the run's file; yield its path, None if it cannot be opened."""
    try:
        path = log_file(run_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        logging.getLogger(__name__).warning("the logs of run %s cannot be kept: %s", run_id, error.strerror)
        yield None
        return
    with open(handle, "a", encoding="utf-8", errors="replace") as file, _attached(_Lines(file)):
        yield path


def read_run_logs(run_id: str) -> str | None:
    """Return the captured output of a run; None if there is none."""
    try:
        return mask(log_file(run_id).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def prune_old_logs(max_age_days: int = 30) -> int:
    """Delete log files that were not written for that many days; return how many."""
    oldest = time.time() - max_age_days * 86400
    removed = 0
    for path in logs_dir().glob("*.log"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
                removed += 1
    return removed


class _Lines:
    """A writer of whole, masked lines into a file: a secret that is printed in two parts is complete in its line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.RLock()
        self._begun: dict[str, str] = {}

    def write(self, stream: str, text: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # a full disk ends the log, not the run
            *whole, rest = (self._begun.get(stream, "") + text).split("\n")
            self._begun[stream] = rest
            for line in whole:
                self._file.write(mask(line) + "\n")
            self._file.flush()

    def finish(self) -> None:
        with self._lock:
            for stream, rest in list(self._begun.items()):
                if rest:
                    self.write(stream, "\n")


class _Tee:
    """A stream that also copies its text to the log."""

    def __init__(self, stream: TextIO, name: str, lines: _Lines) -> None:
        self._stream = stream
        self._name = name
        self._lines = lines

    def write(self, text: str) -> int:
        written = self._stream.write(text)
        self._lines.write(self._name, text)
        return written

    def writelines(self, texts: Any) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _attached(lines: _Lines) -> Iterator[None]:
    root = logging.getLogger()
    streams: tuple[Any, Any] = sys.stdout, sys.stderr
    # Python writes warnings to stderr only while no handler is installed.
    handler = _Handler(lines, beside=None if root.handlers else streams[1])
    sys.stdout, sys.stderr = _Tee(streams[0], "out", lines), _Tee(streams[1], "err", lines)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        sys.stdout, sys.stderr = streams
        lines.finish()


class _Handler(logging.Handler):
    """A handler that writes log records as lines."""

    def __init__(self, lines: _Lines, *, beside: TextIO | None) -> None:
        super().__init__()
        self._lines = lines
        self._beside = beside
        self.addFilter(MaskSecrets())
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self._lines.write("log", self.format(record) + "\n")
            if self._beside is not None and record.levelno >= logging.WARNING:
                self._beside.write(record.getMessage() + "\n")


_Factory = Callable[..., logging.LogRecord]


def mask_every_log_record() -> None:
    """Mask known secrets for every handler of this process, including handlers that are added later.

    Records without a secret are left exactly as they are, because some formatters use their arguments.
    """
    before = logging.getLogRecordFactory()
    if getattr(before, "masks_secrets", False):
        return
    logging.setLogRecordFactory(_masking(before))
    threading.excepthook = _masked_thread_error


def _masking(make: _Factory) -> _Factory:
    mask_secrets = MaskSecrets()

    def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        message = record_message(record)
        if record.exc_info or record.stack_info or mask(message) != message:
            mask_secrets.filter(record)
        return record

    made.masks_secrets = True  # type: ignore[attr-defined]
    return made


def _masked_thread_error(args: threading.ExceptHookArgs) -> None:
    """Write the error as Python does, without secrets."""
    if args.exc_type is SystemExit or sys.stderr is None:
        return
    name = args.thread.name if args.thread is not None else "a thread"
    text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
    sys.stderr.write(mask(f"Exception in thread {name}:\n{text}"))
