"""Print the contents of the shop's warehouse and lake, read with their own clients."""

from pathlib import Path

import duckdb
from deltalake import DeltaTable

with duckdb.connect("data/warehouse.duckdb", read_only=True) as warehouse:
    for table in ("orders", "daily_revenue", "reviews"):
        rows = warehouse.sql(f"SELECT count(*) FROM analytics.{table}").fetchall()[0][0]
        print(f"  analytics.{table:<16} {rows:>6,} rows      DuckDB   {Path('data/warehouse.duckdb').resolve()}")

lake = DeltaTable("data/lake/analytics/customer_dim")
versions = duckdb.from_arrow(lake.to_pyarrow_dataset())
total, current = versions.aggregate("count(*), count(*) FILTER (WHERE is_current)").fetchall()[0]
print(
    f"  analytics.customer_dim     {total:>6,} versions  Delta    {Path(lake.table_uri.removeprefix('file://')).resolve()}"
)
print(f"\n  {current:,} customers are current; the history of customer 7:")
history = versions.filter("customer_id = 7").order("valid_from").project("city, valid_from, valid_to, is_current")
for city, since, until, is_current in history.fetchall():
    print(
        f"    {city:<12} from {since:%Y-%m-%d %H:%M}  to {f'{until:%Y-%m-%d %H:%M}' if until else 'now':<17}{'current' if is_current else ''}"
    )
