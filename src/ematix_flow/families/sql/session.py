"""One database session: statements, queries and transactions; the driver's errors are translated here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from ematix_flow.foundation.errors import FlowError

Translate = Callable[[Exception], FlowError]


class SqlSession:
    """A DB-API connection in autocommit, with explicit transactions."""

    def __init__(self, raw: Any, *, translate: Translate, begin: str = "BEGIN") -> None:
        self.raw = raw
        self._translate = translate
        self._begin = begin

    def execute(self, sql: str) -> int:
        """Run one statement; return the number of affected rows."""
        with self._cursor(sql) as cursor:
            count: int = cursor.rowcount
            return max(count, 0)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query and return all rows; only for counts, keys of a plan and previews."""
        with self._cursor(sql) as cursor:
            return [tuple(row) for row in cursor.fetchall()]

    def scalar(self, sql: str) -> Any:
        """Return the first value of a query, None when there is no row."""
        rows = self.rows(sql)
        return rows[0][0] if rows else None

    def execute_all(self, statements: Sequence[str]) -> int:
        """Run the statements in one transaction; return the total number of affected rows."""
        with self.transaction():
            return sum(self.execute(statement) for statement in statements)

    def query(self, sql: str, *, limit: int | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return the column names and at most `limit` rows."""
        with self._cursor(sql) as cursor:
            names = [item[0] for item in cursor.description or ()]
            rows = cursor.fetchmany(limit) if limit is not None else cursor.fetchall()
            return names, [tuple(row) for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything executed inside in one transaction; roll back on any exception."""
        self.execute(self._begin)
        try:
            yield
        except BaseException:
            self._rollback()
            raise
        self.execute("COMMIT")

    @contextmanager
    def creating(self, lock: str | None) -> Iterator[None]:
        """Create schemas and tables inside; with a lock, one process at a time and in one transaction."""
        if lock is None:
            yield
            return
        with self.transaction():
            self.execute(lock)
            yield

    def _rollback(self) -> None:
        # A lost connection has rolled back by itself; the original error is the one to report.
        with suppress(FlowError):
            self.execute("ROLLBACK")

    @contextmanager
    def _cursor(self, sql: str) -> Iterator[Any]:
        try:
            with closing(self.raw.cursor()) as cursor:  # psycopg gives none for a lost connection
                cursor.execute(sql)
                yield cursor
        except FlowError:
            raise
        except Exception as exc:
            raise self._translate(exc) from exc

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def __enter__(self) -> SqlSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
