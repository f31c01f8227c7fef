"""PostgreSQL into a folder of Parquet."""

from tables import Lineitem

from ematix_flow import ObjectStoreLocalConnection, PostgresConnection, ematix, register_connection

register_connection(PostgresConnection(name="origin", url="${BENCH_SOURCE}"))
register_connection(ObjectStoreLocalConnection(name="goal", path="${BENCH_TARGET}", format="parquet"))


@ematix.pipeline(target=Lineitem, source_connection="origin", target_connection="goal", mode="append")
def pg_to_parquet():
    return "SELECT * FROM lineitem"
