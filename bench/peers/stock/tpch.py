"""The 22 queries of TPC-H on Spark as it comes."""

import os
import sys

from pyspark.sql import SparkSession

sys.path.insert(0, os.environ["BENCH_TPCH_CODE"])
from tpch_rounds import run_queries  # found beside the queries

spark = SparkSession.builder.appName("tpch").config("spark.driver.memory", "4g").getOrCreate()
for table in os.environ["BENCH_TPCH_TABLES"].split(","):
    spark.read.parquet(f"{os.environ['BENCH_TPCH']}/{table}.parquet").createOrReplaceTempView(table)
run_queries(lambda query: [tuple(row) for row in spark.sql(query).collect()])
spark.stop()
