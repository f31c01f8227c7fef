"""Parquet into a SQLite file, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("parquet_to_sqlite")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = spark.read.parquet(os.environ["BENCH_SOURCE_FILE"])
(
    rows.write.format("jdbc")
    .option("url", os.environ["BENCH_TARGET_JDBC"])
    .option("driver", "org.sqlite.JDBC")
    .option("dbtable", "bench_orders")
    # SQLite takes one writer at a time: a second one waits three seconds, then its task fails.
    .option("numPartitions", "1")
    .mode("append")
    .save()
)
spark.stop()
