"""A CSV file into a DuckDB file, as one writes it by hand: read by Spark, inserted by DuckDB's own client."""

import os

import duckdb
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("csv_to_duckdb").config("spark.driver.memory", "4g").getOrCreate()
rows = spark.read.csv(
    os.environ["BENCH_SOURCE_FILE"],
    header=True,
    schema="order_id BIGINT, customer_id BIGINT, ordered_at TIMESTAMP, status STRING, amount DECIMAL(15,2)",
)
orders = rows.toArrow()
with duckdb.connect(os.environ["BENCH_TARGET"]) as warehouse:
    warehouse.execute("INSERT INTO bench.shop_orders SELECT * FROM orders")
spark.stop()
