"""Customers from SQLite into a Delta table that keeps every version, as one writes it by hand: one MERGE."""

import os

from pyspark.sql import SparkSession

TARGET = f"{os.environ['BENCH_TARGET']}/bench/customer_dim"
CHANGED = "t.email <> s.email OR t.name <> s.name OR NOT (t.city <=> s.city)"

spark = (
    SparkSession.builder.appName("scd2_to_delta")
    .config("spark.driver.memory", "4g")
    .config("spark.jars", os.environ["BENCH_JARS"])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
customers = (
    spark.read.format("jdbc")
    .option("url", os.environ["BENCH_SOURCE_JDBC"])
    .option("driver", "org.sqlite.JDBC")
    .option("dbtable", os.environ["BENCH_SOURCE_TABLE"])
    .load()
    .selectExpr(
        "CAST(customer_id AS BIGINT) AS customer_id",
        "lower(trim(email)) AS email",
        "trim(name) AS name",
        "nullif(trim(city), '') AS city",
        "updated_at",
    )
)
if not os.path.isdir(f"{TARGET}/_delta_log"):
    first = customers.selectExpr(
        "*", "updated_at AS valid_from", "CAST(NULL AS TIMESTAMP) AS valid_to", "true AS is_current"
    )
    first.write.format("delta").save(TARGET)
else:
    customers.createOrReplaceTempView("customers")
    # A changed customer comes twice: with its key to close the old version, without one to be inserted.
    spark.sql(f"""
        MERGE INTO delta.`{TARGET}` AS t
        USING (
            SELECT customer_id AS merge_key, * FROM customers
            UNION ALL
            SELECT NULL AS merge_key, s.*
            FROM customers AS s JOIN delta.`{TARGET}` AS t ON t.customer_id = s.customer_id
            WHERE t.is_current AND ({CHANGED})
        ) AS s
        ON t.customer_id = s.merge_key AND t.is_current
        WHEN MATCHED AND ({CHANGED}) THEN UPDATE SET t.is_current = false, t.valid_to = s.updated_at
        WHEN NOT MATCHED THEN INSERT (customer_id, email, name, city, updated_at, valid_from, valid_to, is_current)
            VALUES (s.customer_id, s.email, s.name, s.city, s.updated_at, s.updated_at, NULL, true)
    """)
spark.stop()
