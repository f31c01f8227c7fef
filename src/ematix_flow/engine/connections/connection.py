"""`conn`: the live connection that a user's function receives, or that `config.connect()` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.config.resolve import resolve
from ematix_flow.contract.backend import Backend, SqlClient
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.pipeline import DRIFT_POLICIES
from ematix_flow.declare.table import ManagedTable, TableSpec
from ematix_flow.declare.table_data import table_from
from ematix_flow.foundation.errors import DeclarationError, Unsupported
from ematix_flow.planning.drift import apply_drift_policy, differs, plan_ddl, with_unique


class LiveConnection:
    """A session that opens on first use; `repr` shows no secret."""

    def __init__(self, declared: Any) -> None:
        self.declared = declared
        self.backend: Backend = backend_for(declared)
        self._client: SqlClient | None = None

    @property
    def name(self) -> str:
        """Return the connection's name."""
        return str(self.declared.name)

    @property
    def kind(self) -> str:
        """Return the connection's kind."""
        return str(self.declared.kind)

    def _session(self) -> SqlClient:
        if self._client is None:
            if self.backend.client is None:
                raise Unsupported(f"{self.backend.title} runs no statements of its own", hint="use Spark SQL: query()")
            self._client = self.backend.client(self.declared)
        return self._client

    def ping(self) -> bool:
        """Return True if the system answers; raise FlowError otherwise."""
        self._session().query("SELECT 1")
        return True

    def execute(self, sql: str) -> int:
        """Run a statement and return the number of rows affected."""
        return self._session().execute(sql)

    def execute_in_transaction(self, statements: Sequence[str]) -> int:
        """Run statements in one transaction and return the total number of rows affected."""
        return self._session().execute_all(statements)

    def fetch_scalar_int(self, sql: str) -> int:
        """Return the first value of a query as an integer."""
        return int(self._session().query(sql, limit=1)[1][0][0])

    def query(self, sql: str, max_rows: int | None = None) -> dict[str, Any]:
        """Return the columns and rows of a query, and whether `max_rows` truncated them."""
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
        """Return the name of the system's SQL dialect."""
        return self.backend.dialect

    def dsn(self) -> str:
        """Return the URL including its secrets; keep it out of logs."""
        return str(self.declared.resolved().dsn)

    def connection_info(self) -> dict[str, str]:
        """Return the identity of the system, without secrets."""
        parts = self.backend.identity(self.declared) if self.backend.identity else (self.kind, self.name)
        names = ("kind", "host", "port", "dbname", "user") if len(parts) == 5 else ("kind", "path")
        return dict(zip(names, parts, strict=False))

    def ensure_table(
        self, table: TableSpec | type[ManagedTable] | Mapping[str, Any] | str, on_drift: str = "error"
    ) -> dict[str, Any]:
        """Create a table, or compare it with its declaration; raise DriftError if it differs and `on_drift` is "error".

        Return `action` (created, matched or drift), the `differences`, and the executed `steps`: only the creation for
        "error" and "warn", everything that is missing for "evolve".
        """
        spec = table_from(table)
        shape = TargetShape(spec, spec)
        if on_drift not in DRIFT_POLICIES:
            raise DeclarationError(f"on_drift={on_drift!r} is not known", hint='use "error", "warn" or "evolve"')
        if self.backend.ddl is None:
            raise Unsupported(f"{self.backend.title} has no tables to create")
        planner = self.backend.ddl(self.declared)
        state = planner.inspect(shape)
        plan = plan_ddl(shape, state, planner.stored_type)
        if state is None:
            planner.apply(shape, plan.steps)
            return _ensure_result(spec, "created", steps=plan.steps)
        plan = with_unique(plan, shape, planner)
        differences = [str(step) for step in plan.steps] + [item.text for item in plan.drift]
        if on_drift == "evolve":
            steps, _ = apply_drift_policy(plan, on_drift, table=spec.qualified, where=spec.where)
            planner.apply(shape, steps)
            return _ensure_result(spec, "drift" if differences else "matched", differences, steps)
        if differences and on_drift == "error":
            raise differs(spec.qualified, differences, where=spec.where)
        return _ensure_result(spec, "drift" if differences else "matched", differences)

    def close(self) -> None:
        """Close the session."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __repr__(self) -> str:
        return f"Connection({self.declared!r})"

    def __enter__(self) -> LiveConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ensure_result(
    spec: TableSpec, action: str, differences: Sequence[str] = (), steps: Sequence[object] = ()
) -> dict[str, Any]:
    return {
        "table": spec.qualified,
        "action": action,
        "differences": list(differences),
        "steps": [str(step) for step in steps],
    }


def open_connection(name: Any = "default", *, url: str | None = None) -> LiveConnection:
    """Return a live connection by name, by declaration or by URL."""
    if url is not None:
        from ematix_flow.declare.connections import from_url

        return LiveConnection(from_url(name if isinstance(name, str) else "inline", url))
    return LiveConnection(resolve(name).connection)
