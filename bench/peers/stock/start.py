"""A small SQLite table into Parquet, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("start")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = (
    spark.read.format("jdbc")
    # Days are ISO text in the file; the driver expects a time of day after them unless it is told.
    .option("url", f"{os.environ['BENCH_SOURCE_JDBC']}?date_string_format=yyyy-MM-dd")
    .option("driver", "org.sqlite.JDBC")
    .option("dbtable", "tiny")
    .load()
)
rows.write.parquet(f"{os.environ['BENCH_TARGET']}/bench/tiny")
spark.stop()
