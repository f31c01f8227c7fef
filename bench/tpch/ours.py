"""The 22 queries of TPC-H on the product's session, by its settings or on its other engine, and nothing else of it."""

import os

from tpch_rounds import run_queries

from ematix_flow import spark_session

spark = spark_session()
for table in os.environ["BENCH_TPCH_TABLES"].split(","):
    spark.read.parquet(f"{os.environ['BENCH_TPCH']}/{table}.parquet").createOrReplaceTempView(table)
run_queries(lambda query: [tuple(row) for row in spark.sql(query).collect()])
spark.stop()
