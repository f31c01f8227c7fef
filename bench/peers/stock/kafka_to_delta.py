"""Kafka into a Delta table, as one writes it by hand."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = (
    SparkSession.builder.appName("kafka_to_delta")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
messages = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ["BENCH_SOURCE"])
    .option("subscribe", os.environ["BENCH_SOURCE_TOPIC"])
    .option("startingOffsets", "earliest")
    .load()
)
fields = "id BIGINT, customer BIGINT, kind STRING, amount DECIMAL(15,2), day DATE, note STRING"
rows = messages.select(f.from_json(f.col("value").cast("string"), fields).alias("row")).select("row.*")


def write(batch: DataFrame, number: int) -> None:
    (
        batch.write.format("delta")
        .option("txnAppId", "kafka_to_delta")
        .option("txnVersion", number)
        .mode("append")
        .save(f"{os.environ['BENCH_TARGET']}/bench/events")
    )


query = (
    rows.writeStream.foreachBatch(write)
    .option("checkpointLocation", f"{os.environ['BENCH_RUN']}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
