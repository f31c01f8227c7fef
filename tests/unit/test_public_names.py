"""What can be imported, from where, and what importing it must not pull in."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import ematix_flow

ROOT_NAMES = {
    "CDC", "JSON", "JSONB", "UUID", "Aggregation", "AllOf", "Annotated", "AnyOf", "BigInt", "BigQueryConnection",
    "Boolean", "Bytes", "Column", "Connection", "Date", "DeltaLocalConnection", "DeltaS3Connection", "Double",
    "DuckDBConnection", "Float", "GlueSchemaRegistryConnection", "Integer", "Join", "KafkaConnection",
    "KinesisConnection", "Lookup", "ManagedTable", "MySQLConnection", "Numeric", "ObjectStoreLocalConnection",
    "ObjectStoreS3Connection", "PostgresConnection", "PubSubConnection", "PythonAggregateUdfHandle",
    "PythonScalarUdfHandle", "RabbitMQConnection", "RedshiftConnection", "SQLiteConnection",
    "SchemaRegistryConnection", "SmallInt", "SnowflakeConnection", "Source", "StateStore", "String", "Target", "Text",
    "Timestamp", "TimestampTZ", "TriggerOp", "Watermark", "Window", "__version__", "apply_udaf_to_batch",
    "apply_udf_to_batch", "config", "connect", "connections", "ematix", "get_connection", "natural_key", "nullable",
    "pk", "register_connection", "registered_connections", "run_pipeline", "run_streaming_pipeline", "spark_session",
    "streaming", "udaf", "udf",
}  # fmt: skip

DOORS = {
    "ematix_flow._core": (
        "ArrowBatchIter", "Connection", "KafkaBackend", "KinesisBackend", "PubSubBackend", "RabbitMQBackend", "connect",
        "core_version", "create_table_sql", "dlq_park", "dlq_purge", "dlq_record_by_id", "dlq_records", "dlq_replay",
        "dlq_stats", "make_python_udaf", "make_python_udf", "run_pipeline_from_path", "run_pipeline_from_toml_str",
        "same_database", "stream_rewind",
    ),
    "ematix_flow.alerters": (
        "AlertEvent", "Alerter", "active_alerters", "clear_alerters", "from_url", "register_alerter",
    ),
    "ematix_flow.alerters.email": ("EmailAlerter", "from_url"),
    "ematix_flow.alerters.pagerduty": ("PagerDutyAlerter", "from_url"),
    "ematix_flow.alerters.slack": ("SlackAlerter",),
    "ematix_flow.alerters.stdout": ("StdoutAlerter",),
    "ematix_flow.alerters.webhook": ("WebhookAlerter",),
    "ematix_flow.config": (
        "check_connection", "connect", "list_connections", "resolve_dsn", "set_connection",
    ),
    "ematix_flow.connections": ("clear_registry", "connection", "format_from_path", "get_connection", "redact"),
    "ematix_flow.decorators": ("ematix",),
    "ematix_flow.executors": (
        "DispatchError", "DispatchHandle", "DispatchSpec", "Executor", "SubprocessExecutor", "executor_from_url",
    ),
    "ematix_flow.executors.heartbeat": ("HeartbeatThread",),
    "ematix_flow.executors.kubernetes": ("KubernetesJobExecutor",),
    "ematix_flow.executors.lambda_": ("LambdaExecutor",),
    "ematix_flow.executors.protocol": ("DispatchError", "DispatchHandle", "DispatchSpec", "Executor"),
    "ematix_flow.executors.subprocess": ("SubprocessExecutor", "python_subprocess_executor"),
    "ematix_flow.glue_schema_registry": (
        "GlueSchema", "fetch_schema_by_name", "fetch_schema_by_uuid", "register_glue_schema_lookup_callback",
        "register_schema", "unregister_glue_schema_lookup_callback",
    ),
    "ematix_flow.lineage": ("Lineage", "from_url", "lineage_of", "run_event"),
    "ematix_flow.scheduler.executor_url": ("executor_from_url",),
    "ematix_flow.scheduler.loop": ("DispatchFailedEvent", "run_scheduler"),
    "ematix_flow.logs": ("capture_pipeline_logs", "logs_dir", "prune_old_logs", "read_run_logs"),
    "ematix_flow.metrics": ("InMemorySink", "MetricsSink", "NullSink", "StdoutSink", "from_url"),
    "ematix_flow.metrics.otel": ("OtelSink",),
    "ematix_flow.metrics.prometheus": ("PrometheusSink",),
    "ematix_flow.markers": ("natural_key", "nullable", "pk"),
    "ematix_flow.normalize": (
        "DEFAULT_DATE_FORMATS", "DEFAULT_TIMESTAMP_FORMATS", "clamp", "date_trunc", "deduplicate_by", "default",
        "derive", "email_normalize", "empty_to_null", "filter_where", "limit", "lower", "not_null_or", "nullif",
        "parse_bool", "parse_date", "parse_int", "parse_numeric", "parse_timestamp", "phone_normalize",
        "regex_replace", "replace", "round", "sample_pct", "sql", "to_timezone", "trim", "truncate", "upper",
        "whitespace_to_null",
    ),
    "ematix_flow.pipeline": (
        "ParentContext", "Pipeline", "RegistryEntry", "RetryPolicy", "ScheduledPipeline", "Source", "Target",
        "ValidateResult", "backfill", "depends_on_of", "dry_run", "gaps", "get_pipeline", "list_entries", "list_pipelines",
        "list_transforms", "order_for_run_due", "preview", "register", "retry_policy_of", "run_pipeline",
        "run_transform", "sync", "validate",
    ),
    "ematix_flow.preview": ("PreviewResult", "TargetPlan", "render_text"),
    "ematix_flow.quality": (
        "FreshnessEvaluator", "FreshnessState", "QualityAssertion", "QualityCheckFailed", "QualityDependencyMissing",
        "QualityError", "QualityOutcome", "QualityUnrunnable", "SlaSpec", "evaluate_freshness", "evaluate_freshness_once",
        "parse_duration", "register_freshness_sla", "registered_slas", "run_expectations", "run_quality_stage",
    ),
    "ematix_flow.run_log": (
        "Action", "InMemoryRunLog", "Interval", "Pause", "RunLog", "RunRecord", "Slot", "SqliteRunLog", "from_url",
    ),
    "ematix_flow.run_log.azure_blob": ("AzureBlobRunLog",),
    "ematix_flow.run_log.duckdb": ("DuckDBRunLog",),
    "ematix_flow.run_log.gcs": ("GcsRunLog",),
    "ematix_flow.run_log.history": ("InMemoryRunHistory", "RunHistoryStore", "RunRecord"),
    "ematix_flow.run_log.memory": ("InMemoryRunLog",),
    "ematix_flow.run_log.mysql": ("MySQLRunLog",),
    "ematix_flow.run_log.postgres": ("PostgresRunLog",),
    "ematix_flow.run_log.protocol": ("ClaimResult", "ExpiredClaim", "RunLog"),
    "ematix_flow.run_log.s3": ("S3RunLog",),
    "ematix_flow.run_log.sqlite": ("SqliteRunLog",),
    "ematix_flow.secrets": (
        "AWSSecretsManagerResolver", "EnvResolver", "GCPSecretManagerResolver", "MissingSecretError", "SecretResolver",
        "VaultResolver", "expand", "register_resolver", "unregister_resolver",
    ),
    "ematix_flow.source": ("Source",),
    "ematix_flow.streaming": (
        "Aggregation", "CDC", "Join", "Lookup", "Source", "StateStore", "Target", "Watermark", "Window",
        "get_streaming_pipeline", "list_streaming_pipelines", "register_streaming_pipeline",
        "render_streaming_pipeline_toml", "run_pipeline", "run_streaming_pipeline",
    ),
    "ematix_flow.streaming_stats": (
        "StreamingStatsRecorder", "make_streaming_run_id", "scrape_counters", "summarize_window",
    ),
    "ematix_flow.table": ("ManagedTable",),
    "ematix_flow.tracing": (
        "Tracer", "configure_tracer_from_url", "get_global_tracer", "pipeline_run_span", "set_global_tracer",
    ),
    "ematix_flow.transforms": ("deduplicate_by", "filter_where", "limit", "sample_pct"),
    "ematix_flow.udaf": ("PythonAggregateUdfHandle", "apply_udaf_to_batch", "udaf"),
    "ematix_flow.udf": ("PythonScalarUdfHandle", "apply_udf_to_batch", "udf"),
    "ematix_flow.types": ("BigInt", "Column", "Numeric", "String", "TimestampTZ"),
    "ematix_flow.warehouses": ("BigQueryConnection", "RedshiftConnection", "SnowflakeConnection"),
}  # fmt: skip

HEAVY = (
    "pyspark", "pyarrow", "pandas", "sqlglot", "duckdb", "psycopg", "pymysql", "adbc_driver_manager", "connectorx",
    "prometheus_client", "opentelemetry", "boto3", "hvac", "google.cloud", "azure.core", "kubernetes",
)  # fmt: skip


def test_the_package_offers_exactly_these_names() -> None:
    assert set(ematix_flow.__all__) == ROOT_NAMES
    assert len(ematix_flow.__all__) == len(ROOT_NAMES)


def test_every_offered_name_is_there() -> None:
    missing = [name for name in ematix_flow.__all__ if not hasattr(ematix_flow, name)]
    assert missing == []


def test_the_offered_names_are_sorted() -> None:
    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2), name

    assert list(ematix_flow.__all__) == sorted(ematix_flow.__all__, key=rank)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = ematix_flow.conect  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = ematix_flow.config.conect


@pytest.mark.parametrize("first", ["import ematix_flow.udf, ematix_flow.udaf", "pass"])
def test_a_decorator_is_imported_from_the_package_although_a_module_has_its_name(first: str) -> None:
    code = f"{first}; from ematix_flow import udf, udaf; import ematix_flow; print(udf.__name__, udaf.__name__, callable(ematix_flow.udf))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["udf", "udaf", "True"]


@pytest.mark.parametrize("module", sorted(DOORS))
def test_a_door_offers_its_documented_names(module: str) -> None:
    door = importlib.import_module(module)
    assert [name for name in DOORS[module] if not hasattr(door, name)] == []
    assert [name for name in getattr(door, "__all__", ()) if not hasattr(door, name)] == []


def test_importing_the_package_and_its_doors_loads_no_engine_and_no_driver() -> None:
    doors = "; ".join(f"import {module}" for module in DOORS)
    code = f"import sys; {doors}; from ematix_flow import *; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
