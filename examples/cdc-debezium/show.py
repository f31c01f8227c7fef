"""Print the rows of the mirror."""

import duckdb

with duckdb.connect("warehouse.duckdb", read_only=True) as client:
    print(client.sql("SELECT id, name, city, deleted_at FROM main.customers ORDER BY id"))
