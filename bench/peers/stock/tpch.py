"""The 22 queries of TPC-H on Spark as it comes."""

import os
import sys

from pyspark.sql import SparkSession

sys.path.insert(0, os.environ["BENCH_TPCH_CODE"])
from tpch_rounds import run_queries  # found beside the queries

memory = os.environ.get("BENCH_STOCK_MEMORY", "4g")
spark = SparkSession.builder.appName("tpch").config("spark.driver.memory", memory).getOrCreate()
for table in os.environ["BENCH_TPCH_TABLES"].split(","):
    spark.read.parquet(f"{os.environ['BENCH_TPCH']}/{table}.parquet").createOrReplaceTempView(table)
run_queries(lambda query: [tuple(row) for row in spark.sql(query).collect()])
spark.stop()
