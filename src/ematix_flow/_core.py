"""Functions on connections, tables, SQL functions and dead letters, under the names that older code imports."""

from __future__ import annotations

from ematix_flow.api.connect import LiveConnection as Connection
from ematix_flow.api.connect import same_database
from ematix_flow.api.core import _apply_python_udaf_to_batch as _apply_python_udaf_to_batch
from ematix_flow.api.core import _apply_python_udf_to_batch as _apply_python_udf_to_batch
from ematix_flow.api.core import (
    connect,
    core_version,
    create_table_sql,
    dlq_park,
    dlq_purge,
    dlq_record_by_id,
    dlq_records,
    dlq_replay,
    dlq_stats,
    make_python_udaf,
    make_python_udf,
    run_pipeline_from_path,
    run_pipeline_from_toml_str,
    stream_rewind,
)
from ematix_flow.backends.kafka.notebook import KafkaBackend
from ematix_flow.backends.kinesis.notebook import KinesisBackend
from ematix_flow.backends.pubsub.notebook import PubSubBackend
from ematix_flow.backends.rabbitmq.notebook import RabbitMQBackend
from ematix_flow.declare.udfs import PythonAggregateUdfHandle, PythonScalarUdfHandle
from ematix_flow.messages.notebook import ArrowBatchIter
from ematix_flow.streaming.python_api import KafkaToKafkaEosPipeline

__all__ = [
    "ArrowBatchIter", "Connection", "KafkaBackend", "KafkaToKafkaEosPipeline", "KinesisBackend", "PubSubBackend",
    "PythonAggregateUdfHandle", "PythonScalarUdfHandle", "RabbitMQBackend", "connect", "core_version",
    "create_table_sql", "dlq_park", "dlq_purge", "dlq_record_by_id", "dlq_records", "dlq_replay", "dlq_stats",
    "make_python_udaf", "make_python_udf", "run_pipeline_from_path", "run_pipeline_from_toml_str", "same_database",
    "stream_rewind",
]  # fmt: skip
