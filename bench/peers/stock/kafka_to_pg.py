"""Kafka into PostgreSQL, as one writes it by hand."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = (
    SparkSession.builder.appName("kafka_to_pg")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
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
    batch.write.jdbc(
        f"{os.environ['BENCH_TARGET_JDBC']}&reWriteBatchedInserts=true",
        "bench.events",
        mode="append",
        properties={"driver": "org.postgresql.Driver", "batchsize": "10000"},
    )


query = rows.writeStream.foreachBatch(write).option("checkpointLocation", f"{os.environ['BENCH_RUN']}/checkpoint")
if os.environ.get("BENCH_RUNS_ON") is None:
    query = query.trigger(availableNow=True)
query.start().awaitTermination()
spark.stop()
