"""A small CSV file into Parquet, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("start_csv").config("spark.driver.memory", "4g").getOrCreate()
rows = spark.read.csv(
    os.environ["BENCH_SOURCE_FILE"], header=True, schema="id BIGINT, city STRING, amount DECIMAL(15,2), day DATE"
)
rows.write.parquet(f"{os.environ['BENCH_TARGET']}/bench/tiny")
spark.stop()
