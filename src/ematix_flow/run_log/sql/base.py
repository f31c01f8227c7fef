"""Transactions on any SQL database: one connection per process, opened on first use and reopened if it was lost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ematix_flow.foundation.errors import FlowError, Unreachable
from ematix_flow.run_log.sql import migrations
from ematix_flow.run_log.sql.dialect import RunLogDialect, RunLogSession

_TRIES = 12
_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")


class Conflict(Unreachable):
    """The database rolled this transaction back in favour of another one; nothing was written."""


class SqlStore:
    """A database with the tables of the run log, which are created if missing."""

    def __init__(self, dialect: RunLogDialect, *, create_tables: bool = True) -> None:
        self._dialect = dialect
        self._create_tables = create_tables
        self._open: tuple[int, RunLogSession] | None = None
        self._inherited: Any = None
        with self._transaction(write=False):
            pass

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._dialect.lock:
            self._drop()

    @contextmanager
    def _transaction(self, *, write: bool = True) -> Iterator[RunLogSession]:
        """Yield a session in one transaction; a writer locks at once, since a reader may be unable to upgrade later."""
        dialect = self._dialect
        with dialect.lock:
            try:
                session = self._begin(write)
                try:
                    yield session
                    session.run("COMMIT")
                except BaseException as problem:
                    self._give_up(session, broken=not isinstance(problem, Exception))
                    raise
                finally:
                    if not dialect.keeps_open:
                        self._drop()
            except FlowError:
                raise
            except dialect.errors as error:
                meaning = dialect.translate(error)
                if dialect.is_conflict(error):
                    raise Conflict(meaning.what, hint="try again") from error
                raise meaning from error

    def _begin(self, write: bool) -> RunLogSession:
        begin = self._dialect.begin_write if write else self._dialect.begin_read
        session, is_new = self._session()
        try:
            session.run(begin)
        except self._dialect.errors:
            if is_new or not self._dialect.may_vanish:
                raise
            self._drop()
            session, _ = self._session()
            session.run(begin)
        return session

    def _session(self) -> tuple[RunLogSession, bool]:
        """Return the open connection and whether it is new; a forked child must not use its parent's."""
        if self._open is not None and self._dialect.per_process and self._open[0] != os.getpid():
            self._inherited = self._open  # referenced for good, because closing it would end the parent's session
            self._open = None
        if self._open is not None:
            return self._open[1], False
        session = RunLogSession(self._dialect.connect(), self._dialect)
        try:
            migrations.migrate(session, create=self._create_tables)
        except BaseException:
            session.raw.close()
            raise
        self._open = (os.getpid(), session)
        return session, True

    def _give_up(self, session: RunLogSession, *, broken: bool) -> None:
        """Roll back; a connection that was interrupted in the middle of a protocol message is closed."""
        try:
            self._dialect.roll_back(session)
        except self._dialect.errors:
            broken = True
        if broken and self._dialect.per_process:
            self._drop()

    def _drop(self) -> None:
        if self._open is not None and self._open[0] == os.getpid():
            with suppress(*self._dialect.errors):
                self._open[1].raw.close()
        self._open = None


def retry_on_conflict(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Decorate a method to retry its transaction when the database rolled it back in favour of another one."""

    @wraps(method)
    def tried(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        for number in range(1, _TRIES):
            try:
                return method(self, *args, **kwargs)
            except Conflict:
                time.sleep(random.uniform(0.5, 1) * min(0.01 * 2**number, 0.5))  # noqa: S311
        return method(self, *args, **kwargs)

    return tried
