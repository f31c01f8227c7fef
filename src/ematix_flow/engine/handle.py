"""`conn`: a live connection in the hands of the user's function, or from `config.connect()`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend, SqlClient
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.table import ManagedTable, TableSpec
from ematix_flow.declare.table_data import as_table
from ematix_flow.foundation.errors import Unsupported
from ematix_flow.planning.drift import plan_ddl, settle_drift


class Connection:
    """A session that opens when it is first used; `repr` shows no secret."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared
        self.backend: Backend = backend_for(declared)
        self._client: SqlClient | None = None

    @property
    def name(self) -> str:
        """The connection's name."""
        return str(self.declared.name)

    @property
    def kind(self) -> str:
        """The connection's kind."""
        return str(self.declared.kind)

    def _session(self) -> SqlClient:
        if self._client is None:
            if self.backend.client is None:
                raise Unsupported(f"{self.backend.title} runs no statements of its own", hint="use Spark SQL: query()")
            self._client = self.backend.client(self.declared)
        return self._client

    def ping(self) -> bool:
        """Whether the system answers."""
        self._session().query("SELECT 1")
        return True

    def execute(self, sql: str) -> int:
        """Run a statement; rows affected."""
        return self._session().execute(sql)

    def execute_in_transaction(self, statements: Sequence[str]) -> int:
        """Run statements in one transaction; rows affected in all."""
        return self._session().execute_all(statements)

    def fetch_scalar_int(self, sql: str) -> int:
        """The first value of a query as a number."""
        return int(self._session().query(sql, limit=1)[1][0][0])

    def query(self, sql: str, max_rows: int | None = None) -> dict[str, Any]:
        """Columns and rows of a query."""
        limit = None if max_rows is None else max_rows + 1
        names, rows = self._session().query(sql, limit=limit)
        truncated = max_rows is not None and len(rows) > max_rows
        kept = rows[:max_rows] if truncated else rows
        return {
            "columns": [{"name": name} for name in names],
            "rows": [list(row) for row in kept],
            "truncated": truncated,
        }

    def dialect(self) -> str:
        """The SQL dialect the system speaks."""
        return self.backend.dialect

    def dsn(self) -> str:
        """The url with its secrets; keep it out of logs."""
        return str(self.declared.resolved().dsn)

    def connection_info(self) -> dict[str, str]:
        """Which system this is, without secrets."""
        parts = self.backend.identity(self.declared) if self.backend.identity else (self.kind, self.name)
        names = ("kind", "host", "port", "dbname", "user") if len(parts) == 5 else ("kind", "path")
        return dict(zip(names, parts, strict=False))

    def ensure_table(
        self, table: TableSpec | type[ManagedTable] | Mapping[str, Any] | str, on_drift: str = "error"
    ) -> dict[str, Any]:
        """Create or migrate a table; says what was done."""
        spec = as_table(table)
        shape = TargetShape(spec, spec)
        if self.backend.ddl is None:
            raise Unsupported(f"{self.backend.title} has no tables to create")
        planner = self.backend.ddl(self.declared)
        plan = plan_ddl(shape, planner.inspect(shape), planner.stored_type)
        steps, warned = settle_drift(plan, on_drift, table=spec.qualified, where=spec.where)
        planner.apply(shape, steps)
        return {"table": spec.qualified, "steps": [str(step) for step in steps], "drift": list(warned)}

    def close(self) -> None:
        """End the session."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __repr__(self) -> str:
        return f"Connection({self.declared!r})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(name: Any = "default", *, url: str | None = None) -> Connection:
    """A live connection by name, by declaration or by url."""
    if url is not None:
        from ematix_flow.declare.connections import from_url

        return Connection(from_url(name if isinstance(name, str) else "inline", url))
    return Connection(resolve(name).connection)
