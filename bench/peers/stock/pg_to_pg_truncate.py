"""One PostgreSQL database into another, replacing what is there, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("pg_to_pg_truncate")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = (
    spark.read.format("jdbc")
    .option("url", os.environ["BENCH_SOURCE_JDBC"])
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "orders")
    .load()
)
(
    rows.write.format("jdbc")
    .option("url", os.environ["BENCH_TARGET_JDBC"])
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "bench.orders")
    .option("truncate", "true")
    .mode("overwrite")
    .save()
)
spark.stop()
