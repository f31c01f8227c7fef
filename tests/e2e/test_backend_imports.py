"""A run imports the backends of its connections, and no others."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

PROGRAM = """
import sys
from ematix_flow import BigInt, DuckDBConnection, ManagedTable, SQLiteConnection, ematix

class Orders(ManagedTable):
    __schema__, __tablename__ = "main", "orders"
    id: BigInt

@ematix.pipeline(
    target=Orders, target_connection=DuckDBConnection("into", path="into.duckdb"), mode="append",
    source_connection=SQLiteConnection("shop", path="shop.db"),
)
def load():
    return "SELECT id FROM orders"

assert load.sync().rows_inserted == 2
names = {name.split(".")[2] for name in sys.modules if name.startswith("ematix_flow.backends.")}
print("imported:", *sorted(names))
"""


@pytest.mark.slow
def test_a_load_from_sqlite_into_duckdb_imports_these_two(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop, shop:
        shop.execute("CREATE TABLE orders (id BIGINT)")
        shop.execute("INSERT INTO orders VALUES (1), (2)")
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "imported: catalog duckdb sqlite"
