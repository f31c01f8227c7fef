"""The data: TPC-H made once per scale, and the tables that the cases move, as Parquet and CSV in a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench import envs
from bench.model import Unavailable
from bench.place import Place
from bench.tables import CHANGED_ORDERS, CUSTOMERS, EVENTS, MOVED, MOVED_CUSTOMERS, SHOP_ORDERS, TINY, Table

TPCH = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
_CHANGE = (
    "SELECT * REPLACE (CASE WHEN o_orderkey % 5 = 0 THEN o_totalprice + 1 ELSE o_totalprice END::DECIMAL(15,2) "
    "AS o_totalprice, CASE WHEN o_orderkey % 5 = 0 THEN o_comment || '!' ELSE o_comment END AS o_comment)"
)


_SHOP_ORDERS = (
    "SELECT i AS order_id, 1 + i * 7919 % 500 AS customer_id, TIMESTAMP '2026-01-01 00:00:00' + i * INTERVAL 11 MINUTE "
    "AS ordered_at, CASE i % 4 WHEN 0 THEN 'cancelled' WHEN 1 THEN 'shipped' ELSE 'paid' END AS status, "
    f"(5 + i * 37 % 40000 / 100.0)::DECIMAL(15,2) AS amount FROM range(1, {SHOP_ORDERS.rows + 1}) AS t(i)"
)
# Every value is as the normalizers of the load would leave it, so that the result is the source.
_CUSTOMERS = (
    "SELECT i AS customer_id, 'person' || i || '@example.com' AS email, 'Person ' || i AS name, "
    "CASE WHEN i <= {moved} THEN 'Lisbon' ELSE 'city ' || i % 7 END AS city, CASE WHEN i <= {moved} OR i > 500 "
    "THEN TIMESTAMP '2026-02-02 09:00:00' ELSE TIMESTAMP '2026-01-01 00:00:00' + i * INTERVAL 1 MINUTE END AS updated_at "
    "FROM range(1, {rows} + 1) AS t(i)"
)


def tpch(place: Place, *tables: str, scale: float | None = None) -> Path:
    """The folder with these TPC-H tables at a scale factor, by default the place's scale, each one Parquet file."""
    scale = place.scale if scale is None else scale
    folder = place.cache / "tpch" / f"sf{scale:g}"
    missing = [name for name in tables if not (folder / f"{name}.parquet").is_file()]
    if missing:
        _generate(place, folder, missing, scale)
    return folder


def lake(place: Place) -> Path:
    """The folder that holds the cases' tables: `raw.orders` is raw/orders.parquet in it."""
    return place.cache / "lake" / f"scale{place.scale:g}"


def parquet(place: Place, table: Table) -> Path:
    """The rows of a table as one Parquet file, in row groups that two readers can share."""
    file = lake(place) / "raw" / f"{table.name}.parquet"
    if not file.is_file():
        _write(file, _rows_of(place, table), "FORMAT parquet, ROW_GROUP_SIZE 122880, COMPRESSION zstd")
    return file


def csv(place: Place, table: Table) -> Path:
    """The rows of a table as CSV with a header."""
    file = lake(place) / "raw" / f"{table.name}.csv"
    if not file.is_file():
        _write(file, _rows_of(place, table), "FORMAT csv, HEADER")
    return file


def plain_csv(place: Place, table: Table) -> Path:
    """The same without a header, for servers that load text; gone with the place."""
    file = place.work / f"{table.name}.csv"
    _write(file, f"SELECT * FROM read_parquet('{parquet(place, table)}')", "FORMAT csv, HEADER false")
    return file


def _rows_of(place: Place, table: Table) -> str:
    if table is TINY:
        return (
            "SELECT i AS id, 'city ' || i % 7 AS city, (i * 1.25)::DECIMAL(15,2) AS amount, "
            f"DATE '2026-01-01' + (i % 28)::INTEGER AS day FROM range(1, {TINY.rows + 1}) AS t(i)"
        )
    if table is SHOP_ORDERS:
        return _SHOP_ORDERS
    if table in (CUSTOMERS, MOVED_CUSTOMERS):
        return _CUSTOMERS.format(rows=table.rows, moved=MOVED if table is MOVED_CUSTOMERS else 0)
    if table is EVENTS:
        return (
            "SELECT i AS id, i * 7919 % 100003 AS customer, CASE i % 3 WHEN 0 THEN 'sold' WHEN 1 THEN 'sent' ELSE 'paid' END "
            "AS kind, (i % 100000 * 1.25)::DECIMAL(15,2) AS amount, DATE '2026-01-01' + (i % 365)::INTEGER AS day, "
            f"md5(i::VARCHAR) AS note FROM range({place.rows(EVENTS)}) AS t(i)"
        )
    source = f"read_parquet('{tpch(place, table.origin) / table.origin}.parquet')"
    select = _CHANGE if table is CHANGED_ORDERS else "SELECT *"
    return f"{select} FROM {source} LIMIT {place.rows(table)}"


def _write(file: Path, select: str, options: str) -> None:
    import duckdb

    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.part")
    with duckdb.connect() as client:
        client.execute(f"COPY ({select}) TO '{draft}' ({options})")
    draft.replace(file)


def _generate(place: Place, folder: Path, tables: list[str], scale: float) -> None:
    program = envs.programs("tpchgen", cache=place.cache) / "tpchgen-cli"
    print(f"  making TPC-H {', '.join(tables)} at scale {scale:g}", flush=True)
    draft = place.work / "tpch"
    done = subprocess.run(
        [str(program), "parquet", "-s", f"{scale:g}", "-T", ",".join(tables), "-o", str(draft), "-q"],
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise Unavailable(f"tpchgen-cli failed: {done.stderr.strip()[-300:]}")
    folder.mkdir(parents=True, exist_ok=True)
    for name in tables:
        shutil.move(draft / f"{name}.parquet", folder / f"{name}.parquet")
