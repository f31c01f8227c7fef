"""Isolation of observers from runs: a failing observer is reported once and does not fail the run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ematix_flow.foundation.redact import mask

_log = logging.getLogger("ematix_flow.observe")


class WarnOnce:
    """A reporter that warns once about each failing observer, and again only after it worked in between."""

    def __init__(self, report: Callable[[str], None] | None = None) -> None:
        self._warn = report or (lambda text: _log.warning("%s", text))
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def warn(self, name: str, problem: BaseException | str) -> None:
        """Report a failure of `who`, unless it is reported already."""
        with self._lock:
            if name in self._warned:
                return
            self._warned.add(name)
        message = problem if isinstance(problem, str) else _problem_text(problem)
        self._warn(mask(f"{name} does not work: {message}; the run goes on, and this is reported only once"))

    def clear(self, name: str) -> None:
        """Record that `who` works again."""
        with self._lock:
            self._warned.discard(name)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Report an exception of the block once, and suppress it."""
        try:
            yield
        except Exception as error:
            self.warn(name, error)
        else:
            self.clear(name)


def _problem_text(problem: BaseException) -> str:
    message = str(getattr(problem, "what", problem)).strip()
    return message if hasattr(problem, "what") and message else f"{type(problem).__name__}: {message}".rstrip(": ")
