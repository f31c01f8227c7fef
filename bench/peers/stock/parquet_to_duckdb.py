"""Parquet into a DuckDB file, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("parquet_to_duckdb")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = spark.read.parquet(os.environ["BENCH_SOURCE_FILE"])
(
    rows.write.format("jdbc")
    .option("url", os.environ["BENCH_TARGET_JDBC"])
    .option("driver", "org.duckdb.DuckDBDriver")
    .option("dbtable", "bench.orders")
    .mode("append")
    .save()
)
spark.stop()
