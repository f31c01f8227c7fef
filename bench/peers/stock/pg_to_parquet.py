"""PostgreSQL into Parquet, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("pg_to_parquet")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = (
    spark.read.format("jdbc")
    .option("url", os.environ["BENCH_SOURCE_JDBC"])
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "lineitem")
    .load()
)
rows.write.parquet(f"{os.environ['BENCH_TARGET']}/bench/lineitem")
spark.stop()
