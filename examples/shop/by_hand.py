"""The load of orders, written with PySpark alone: CSV files into a new DuckDB file."""

import duckdb
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders by hand").getOrCreate()
found = spark.read.csv(
    "data/raw/orders",
    header=True,
    schema="order_id BIGINT, customer_id BIGINT, ordered_at TIMESTAMP, status STRING, amount DECIMAL(12,2)",
).toArrow()
with duckdb.connect("data/by_hand.duckdb") as warehouse:
    warehouse.execute("CREATE OR REPLACE TABLE orders AS SELECT * FROM found")
spark.stop()
print(f"{found.num_rows:,} rows")
