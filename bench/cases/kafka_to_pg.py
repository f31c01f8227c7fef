"""Kafka → PostgreSQL: a stream reads everything that is there."""

from __future__ import annotations

from bench.contestants import bare, product_stream
from bench.ends import KafkaSource, PostgresTarget
from bench.model import Case, Goal
from bench.tables import EVENTS

CASE = Case(
    name="kafka_to_pg",
    title="Kafka → PostgreSQL, a stream until all is read",
    table=EVENTS,
    source=KafkaSource(),
    target=PostgresTarget(),
    contestants=(product_stream("kafka_to_pg"), bare("kafka_to_pg", "kafka", "postgres")),
    goals=(Goal(at_least=0.9),),
)
