"""Parquet merged into PostgreSQL, as one writes it by hand: a stage by JDBC, then one INSERT … ON CONFLICT."""

import os

import psycopg
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("pg_upsert")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .getOrCreate()
)
rows = spark.read.parquet(os.environ["BENCH_SOURCE_FILE"])
(
    rows.write.format("jdbc")
    .option("url", os.environ["BENCH_TARGET_JDBC"])
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "bench.orders_stage")
    .mode("overwrite")
    .save()
)
names = rows.columns
changes = ", ".join(f"{name} = excluded.{name}" for name in names if name != "o_orderkey")
with psycopg.connect(os.environ["BENCH_TARGET"]) as client:
    client.execute(
        f"INSERT INTO bench.orders ({', '.join(names)}) SELECT {', '.join(names)} FROM bench.orders_stage "
        f"ON CONFLICT (o_orderkey) DO UPDATE SET {changes}"
    )
    client.execute("DROP TABLE bench.orders_stage")
spark.stop()
