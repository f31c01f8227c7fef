"""The module that the soak runs: one growing table into a database, a lake and a folder, by every strategy."""

from __future__ import annotations

from typing import Annotated

from ematix_flow import (
    BigInt,
    DeltaLocalConnection,
    DuckDBConnection,
    ObjectStoreLocalConnection,
    SQLiteConnection,
    Text,
    ematix,
    pk,
)

SHOP = SQLiteConnection(name="shop", path="shop.db")
HOUSE = DuckDBConnection(name="house", path="house.duckdb")
LAKE = DeltaLocalConnection(name="lake", path="lake")
FOLDER = ObjectStoreLocalConnection(name="folder", path="folder", format="parquet")


@ematix.table(schema="soak")
class Appended:
    """Rows without a key: a doubled row would show."""

    n: BigInt
    text: Text


@ematix.table(schema="soak")
class Merged:
    """The last state of every row."""

    n: Annotated[BigInt, pk()]
    text: Text


@ematix.pipeline(target=Appended, target_connection=HOUSE, source_connection=SHOP, mode="append", incremental=True,
                 watermark_column="n")  # fmt: skip
def to_duckdb() -> str:
    """Append what is new to a database."""
    return "SELECT n, text FROM events"


@ematix.pipeline(target=Appended, target_connection=LAKE, source_connection=SHOP, mode="append", incremental=True,
                 watermark_column="n")  # fmt: skip
def to_delta() -> str:
    """Append what is new to a lake."""
    return "SELECT n, text FROM events"


@ematix.pipeline(target=Merged, target_connection=LAKE, source_connection=SHOP, mode="merge")
def merged() -> str:
    """Bring the last rows of a lake up to date."""
    return "SELECT n, text FROM events WHERE n > (SELECT max(n) - 40 FROM events)"


@ematix.pipeline(target=Merged, target_connection=FOLDER, source_connection=SHOP, mode="truncate")
def to_parquet() -> str:
    """Replace a folder by the last rows."""
    return "SELECT n, text FROM events WHERE n > (SELECT max(n) - 40 FROM events)"
