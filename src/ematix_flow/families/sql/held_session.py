"""One session kept open for a stream and reused by its steps: opening one costs more than most steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from ematix_flow.families.sql.session import SqlSession
from ematix_flow.foundation.errors import FlowError

IDLE_SECONDS = 30.0
"""Idle seconds after which a session is tested before reuse: servers and firewalls close idle connections."""


class SharedSession:
    """A session lent to one step at a time; a concurrent step gets a new session."""

    def __init__(self, make: Callable[[], SqlSession], *, reset: str) -> None:
        self._make, self._reset = make, reset
        self._session: SqlSession | None = None
        self._returned = 0.0
        self._is_lent = False

    def lend(self) -> SqlSession:
        """Return a session that is given back when it is closed."""
        if self._is_lent:
            return self._make()
        session = self._usable_session() or self._make()
        self._session, self._is_lent = None, True
        return _BorrowedSession(session, self)

    def return_session(self, session: SqlSession, *, has_failed: bool) -> None:
        """Reset the session and keep it for reuse; close it if its step or the reset has failed."""
        self._is_lent = False
        if not has_failed:
            with suppress(FlowError):
                session.execute(self._reset)
                self._session, self._returned = session, time.monotonic()
                return
        session.close()

    def close(self) -> None:
        """Close the kept session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _usable_session(self) -> SqlSession | None:
        session = self._session
        if session is None or time.monotonic() - self._returned < IDLE_SECONDS:
            return session
        try:
            session.execute("SELECT 1")
        except FlowError:
            session.close()
            return None
        return session


class _BorrowedSession(SqlSession):
    """A lent session; `close` gives it back to its holder."""

    def __init__(self, session: SqlSession, holder: SharedSession) -> None:
        super().__init__(session.raw, translate=session._translate, begin=session._begin)
        self._own, self._holder, self._has_failed = session, holder, False

    def close(self) -> None:
        self._holder.return_session(self._own, has_failed=self._has_failed)

    def __exit__(self, *error: object) -> None:
        self._has_failed = error[0] is not None
        self.close()
