"""Tables that a stream is joined with: read from their systems, cached in Spark, and refreshed between batches."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.dataplane.spark_session import active_session
from ematix_flow.declare.streams.spec import Lookup
from ematix_flow.engine.session import spark_errors
from ematix_flow.engine.sql.statement import SOURCE, NamedRelation
from ematix_flow.foundation.errors import DeclarationError, Unsupported
from ematix_flow.foundation.redact import mask
from ematix_flow.sql.expressions import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL_ROWS = 10_000
"""Up to this size every task gets a copy by a hint; above, Spark decides by the size of the cached rows."""
_log = logging.getLogger(__name__)


@dataclass
class CachedTable:
    """The cached rows of one read."""

    held: DataFrame
    frame: DataFrame
    """The same rows as statements read them: with a broadcast hint where they are few."""
    rows: int
    at: float

    def unpersist(self) -> None:
        """Let Spark drop the rows."""
        self.held.unpersist()


@dataclass
class CachedLookup:
    """One lookup table, with its cached rows."""

    name: str
    lookup: Lookup
    clock: Callable[[], float]
    view: str = field(default_factory=lambda: f"flow_lookup_{uuid.uuid4().hex}")
    failures: int = 0
    """Failed refreshes in a row."""
    _cached: CachedTable | None = None
    _before: CachedTable | None = None
    _tried: float = 0.0

    @property
    def is_due(self) -> bool:
        """Return whether it was never read, or its refresh interval has passed."""
        every = self.lookup.refresh_interval_ms
        return self._cached is None or (every is not None and (self.clock() - self._tried) * 1000 >= every)

    @property
    def rows(self) -> int:
        """Return the number of cached rows."""
        return self._cached.rows if self._cached is not None else 0

    def refresh(self) -> None:
        """Read the table for all later joins; a failed refresh keeps the old rows, a failed first read raises."""
        self._tried = self.clock()
        try:
            fresh = self._read(active_session())
        except Exception as exc:
            error = spark_errors.translate(exc)
            if self._cached is None:
                warning = f"lookup {self.name!r} cannot be read: {error.what}"
                raise type(error)(warning, where=error.where, hint=error.hint, lookup=self.name) from exc
            self.failures += 1
            age = self.clock() - self._cached.at
            _log.warning(
                "lookup %s could not be read again, the rows of %.0f s ago stay: %s", self.name, age, mask(error.what)
            )
            return
        fresh.frame.createOrReplaceGlobalTempView(self.view)
        if self._before is not None:
            self._before.unpersist()  # a batch that was planned with it has ended by now
        self._before, self._cached, self.failures = self._cached, fresh, 0

    def _read(self, spark: SparkSession) -> CachedTable:
        connection = resolve(self.lookup.connection).connection
        backend = backend_for(connection)
        if backend.batch_source is None:
            raise Unsupported(f"{backend.title} has no tables to look up", hint="use a database, a lake or files")
        source = backend.batch_source(connection)
        with ExitStack() as open_until:
            plan = source.plan(self._query(backend.dialect), parallelism=1)
            held = source.read(plan, spark, open_until).persist()
            try:
                rows = held.count()  # from here on the system is not queried again, and its snapshot may go
            except BaseException:
                held.unpersist()
                raise
        return CachedTable(held, held.hint("broadcast") if rows <= SMALL_ROWS else held, rows, self.clock())

    def _query(self, dialect: str) -> str:
        if self.lookup.query is not None:
            return self.lookup.query
        named = [part for part in (self.lookup.schema, self.lookup.table) if part]
        parts = named if len(named) > 1 else str(named[0]).split(".")
        return "SELECT * FROM " + ".".join(quote(part, dialect) for part in parts)

    def relation(self) -> NamedRelation:
        """Return the relation by which a statement reads it."""
        if self._cached is None:
            raise AssertionError("a lookup is read before it is named")
        return NamedRelation(f"global_temp.{quote(self.view, 'spark')}", tuple(self._cached.frame.dtypes))

    def close(self) -> None:
        """Drop the rows and the view."""
        for kept in (self._before, self._cached):
            if kept is not None:
                kept.unpersist()
        if self._cached is not None:
            self._cached.frame.sparkSession.catalog.dropGlobalTempView(self.view)
        self._before = self._cached = None


class Lookups:
    """All lookups of one stream."""

    def __init__(self, lookups: Mapping[str, Lookup], *, clock: Callable[[], float] = time.monotonic) -> None:
        for name in lookups:
            if not name.isidentifier() or name.lower() == SOURCE:
                raise DeclarationError(
                    f"a lookup cannot be called {name!r}",
                    hint="use letters, digits and _; source are the stream's rows",
                )
        self.each = [CachedLookup(name, lookup, clock) for name, lookup in lookups.items()]

    def current(self) -> dict[str, NamedRelation]:
        """Return the tables for the batch that begins; those that are due are read first."""
        for item in self.each:
            if item.is_due:
                item.refresh()
        return {item.name: item.relation() for item in self.each}

    def close(self) -> None:
        """Drop all rows."""
        for item in self.each:
            try:
                item.close()
            except Exception as exc:  # a session that has ended has dropped them already
                _log.debug("closing a lookup: %s", mask(str(exc)))
