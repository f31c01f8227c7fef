"""The 22 queries of TPC-H, asked of a connection whose tables are Parquet files, on either engine."""

import os

from tpch_rounds import run_queries

from ematix_flow import connect, connections, spark_session

spark = spark_session()
folder = connections.ObjectStoreLocalConnection("tpch", path=os.environ["BENCH_TPCH"], format="parquet")
with connect(folder) as tables:
    run_queries(lambda query: [tuple(row) for row in tables.query(query)["rows"]])
spark.stop()
