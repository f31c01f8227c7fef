"""A CSV file of a hundred rows into a folder of Parquet."""

from tables import Tiny

from ematix_flow import ObjectStoreLocalConnection, ematix, register_connection

register_connection(ObjectStoreLocalConnection(name="origin", path="${BENCH_SOURCE}", format="csv"))
register_connection(ObjectStoreLocalConnection(name="goal", path="${BENCH_TARGET}", format="parquet"))


@ematix.pipeline(target=Tiny, source_connection="origin", target_connection="goal", mode="append")
def start_csv():
    return "SELECT * FROM raw.tiny"
