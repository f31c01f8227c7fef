"""Kafka → Delta Lake: a stream reads everything that is there."""

from __future__ import annotations

from bench.contestants import bare, product_stream
from bench.ends import DeltaTarget, KafkaSource
from bench.model import Case, Goal
from bench.tables import EVENTS

CASE = Case(
    name="kafka_to_delta",
    title="Kafka → Delta Lake, a stream until all is read",
    table=EVENTS,
    source=KafkaSource(),
    target=DeltaTarget(),
    contestants=(product_stream("kafka_to_delta"), bare("kafka_to_delta", "kafka", "delta")),
    goals=(Goal(at_least=0.9),),
)
