"""The tables that travel: columns, keys, and how each system declares them."""

from __future__ import annotations

from dataclasses import dataclass

BIG, INT, MONEY, DAY, MOMENT, TEXT = "bigint", "integer", "decimal", "date", "timestamp", "text"
_TYPES = {
    "postgres": {BIG: "bigint", INT: "integer", MONEY: "numeric(15,2)", DAY: "date", TEXT: "text"},
    "mysql": {BIG: "bigint", INT: "int", MONEY: "decimal(15,2)", DAY: "date", TEXT: "varchar(199)"},
    "duckdb": {
        BIG: "BIGINT",
        INT: "INTEGER",
        MONEY: "DECIMAL(15,2)",
        DAY: "DATE",
        MOMENT: "TIMESTAMP",
        TEXT: "VARCHAR",
    },
    "sqlite": {BIG: "BIGINT", INT: "INTEGER", MONEY: "DECIMAL(15,2)", DAY: "DATE", MOMENT: "TIMESTAMP", TEXT: "TEXT"},
}


@dataclass(frozen=True)
class Table:
    """A table and how many rows of it a case of scale 1 moves; `origin` is the TPC-H table it comes from."""

    name: str
    origin: str
    rows: int
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(name for name, _ in self.columns)

    def ddl(self, dialect: str, name: str, *, keyed: bool, added: str = "") -> str:
        """CREATE TABLE in a system's own words."""
        lines = [f"{column} {_TYPES[dialect][kind]} NOT NULL" for column, kind in self.columns]
        lines += [added] if added else []
        lines += [f"PRIMARY KEY ({', '.join(self.key)})"] if keyed else []
        return f"CREATE TABLE {name} ({', '.join(lines)})"


LINEITEM = Table(
    name="lineitem",
    origin="lineitem",
    rows=2_000_000,
    columns=(
        ("l_orderkey", BIG),
        ("l_partkey", BIG),
        ("l_suppkey", BIG),
        ("l_linenumber", INT),
        ("l_quantity", MONEY),
        ("l_extendedprice", MONEY),
        ("l_discount", MONEY),
        ("l_tax", MONEY),
        ("l_returnflag", TEXT),
        ("l_linestatus", TEXT),
        ("l_shipdate", DAY),
        ("l_commitdate", DAY),
        ("l_receiptdate", DAY),
        ("l_shipinstruct", TEXT),
        ("l_shipmode", TEXT),
        ("l_comment", TEXT),
    ),
    key=("l_orderkey", "l_linenumber"),
)
_ORDERS = (
    ("o_orderkey", BIG),
    ("o_custkey", BIG),
    ("o_orderstatus", TEXT),
    ("o_totalprice", MONEY),
    ("o_orderdate", DAY),
    ("o_orderpriority", TEXT),
    ("o_clerk", TEXT),
    ("o_shippriority", INT),
    ("o_comment", TEXT),
)
ORDERS = Table(name="orders", origin="orders", rows=1_500_000, columns=_ORDERS, key=("o_orderkey",))
# The same orders a day later: every fifth key has another price and comment.
CHANGED_ORDERS = Table(name="changed_orders", origin="orders", rows=1_500_000, columns=_ORDERS, key=("o_orderkey",))
# Small messages, made here and told as JSON.
EVENTS = Table(
    name="events",
    origin="events",
    rows=1_000_000,
    columns=(("id", BIG), ("customer", BIG), ("kind", TEXT), ("amount", MONEY), ("day", DAY), ("note", TEXT)),
    key=("id",),
)
TINY = Table(
    name="tiny",
    origin="",
    rows=100,
    columns=(("id", BIG), ("city", TEXT), ("amount", MONEY), ("day", DAY)),
    key=("id",),
)
# The orders and the customers of a small shop, as `flow init` makes them.
SHOP_ORDERS = Table(
    name="shop_orders",
    origin="",
    rows=4_000,
    columns=(("order_id", BIG), ("customer_id", BIG), ("ordered_at", MOMENT), ("status", TEXT), ("amount", MONEY)),
    key=("order_id",),
)
_CUSTOMERS = (("customer_id", BIG), ("email", TEXT), ("name", TEXT), ("city", TEXT), ("updated_at", MOMENT))
CUSTOMERS = Table(name="customers", origin="", rows=500, columns=_CUSTOMERS, key=("customer_id",))
# The same customers a day later: 12 have moved, 1 is new.
MOVED_CUSTOMERS = Table(name="moved_customers", origin="", rows=501, columns=_CUSTOMERS, key=("customer_id",))
MOVED = 12
