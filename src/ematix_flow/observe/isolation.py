"""Isolation of observers from runs: a failing observer is reported once and does not fail the run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ematix_flow.foundation.redact import mask

_log = logging.getLogger("ematix_flow.observe")


class Complaints:
    """A reporter that warns once about each failing observer, and again only after it worked in between."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda text: _log.warning("%s", text))
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def about(self, who: str, problem: BaseException | str) -> None:
        """Report a failure of `who`, unless it is reported already."""
        with self._lock:
            if who in self._told:
                return
            self._told.add(who)
        said = problem if isinstance(problem, str) else _in_words(problem)
        self._say(mask(f"{who} does not work: {said}; the run goes on, and this is not said again"))

    def settled(self, who: str) -> None:
        """Record that `who` works again."""
        with self._lock:
            self._told.discard(who)

    @contextmanager
    def isolated(self, who: str) -> Iterator[None]:
        """Report an exception of the block once, and suppress it."""
        try:
            yield
        except Exception as error:
            self.about(who, error)
        else:
            self.settled(who)


def _in_words(problem: BaseException) -> str:
    said = str(getattr(problem, "what", problem)).strip()
    return said if hasattr(problem, "what") and said else f"{type(problem).__name__}: {said}".rstrip(": ")
