"""Keeps what only watches from harming what works: an observer that breaks is told once and left alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ematix_flow.foundation.redact import mask

_log = logging.getLogger("ematix_flow.observe")


class Complaints:
    """Says once that something does not work, and again only after it worked in between."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda text: _log.warning("%s", text))
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def about(self, who: str, problem: BaseException | str) -> None:
        """One more failure of `who`."""
        with self._lock:
            if who in self._told:
                return
            self._told.add(who)
        said = problem if isinstance(problem, str) else _in_words(problem)
        self._say(mask(f"{who} does not work: {said}; the run goes on, and this is not said again"))

    def settled(self, who: str) -> None:
        """`who` worked."""
        with self._lock:
            self._told.discard(who)

    @contextmanager
    def isolated(self, who: str) -> Iterator[None]:
        """Whatever goes wrong inside is told once and ends here."""
        try:
            yield
        except Exception as error:
            self.about(who, error)
        else:
            self.settled(who)


def _in_words(problem: BaseException) -> str:
    said = str(getattr(problem, "what", problem)).strip()
    return said if hasattr(problem, "what") and said else f"{type(problem).__name__}: {said}".rstrip(": ")
