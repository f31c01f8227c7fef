"""PostgreSQL into a Delta table, as one writes it by hand."""

import os

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.appName("pg_to_delta")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
rows = (
    spark.read.format("jdbc")
    .option("url", os.environ["BENCH_SOURCE_JDBC"])
    .option("driver", "org.postgresql.Driver")
    .option("dbtable", "lineitem")
    .load()
)
rows.write.format("delta").save(f"{os.environ['BENCH_TARGET']}/bench/lineitem")
spark.stop()
