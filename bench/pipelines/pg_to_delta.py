"""PostgreSQL into a Delta table."""

from tables import Lineitem

from ematix_flow import DeltaLocalConnection, PostgresConnection, ematix, register_connection

register_connection(PostgresConnection(name="origin", url="${BENCH_SOURCE}"))
register_connection(DeltaLocalConnection(name="goal", path="${BENCH_TARGET}"))


@ematix.pipeline(target=Lineitem, source_connection="origin", target_connection="goal", mode="append")
def pg_to_delta():
    return "SELECT * FROM lineitem"
