"""The same SQLite table of a hundred rows into a folder of Parquet, by a task of Spark's."""

from tables import Tiny

from ematix_flow import ObjectStoreLocalConnection, SQLiteConnection, ematix, register_connection

register_connection(SQLiteConnection(name="origin", path="${BENCH_SOURCE}"))
register_connection(ObjectStoreLocalConnection(name="goal", path="${BENCH_TARGET}", format="parquet"))


@ematix.pipeline(target=Tiny, source_connection="origin", target_connection="goal", mode="append", force_lane="arrow")
def start_on_spark():
    return "SELECT * FROM tiny"
