"""Names of the blocks of the 0.3.0 document: the way to each through the headings."""

from __future__ import annotations

START = "Start:python"
DECORATOR = "Connections/Declaring connections/@ematix.connection decorator:python"
INSTANCE = "Connections/Declaring connections/Typed instance + register_connection:python"
REGISTRY = "Connections/Schema Registry as a connection:python"
CONNECTIONS_FILE = "Connections/Declaring connections/TOML file:toml"
PIPELINES = "Pipelines:python"
DEPENDENCIES = "Pipelines/Dependencies + retry:python"
TABLES = "Pipelines/Tables:python"
WIRING = "Pipelines/Source / target wiring:python"
SIGNATURES = "Pipelines/Two function signatures:python"
STATIC = "Pipelines/Two function signatures:python (2)"
FAN_OUT = "Pipelines/Multi-target fan-out:python"
APPEND = "Modes/append:python"
MERGE = "Modes/merge (a.k.a. scd1):python"
SCD2 = "Modes/scd2:python"
INCREMENTAL = "Modes/Incremental loads + watermarks:python"
TRANSFORMS = "Modes/Pre- and post-load transforms:python"
CRON = "Scheduling/Cron (schedule= on the decorator):python"
PROGRAMMATIC = "Scheduling/Programmatic:python"
FORMATS = "Configuration reference/Object-store file formats:python"
WRITE_OPTIONS = "Configuration reference/Object-store write options:python"
READ_OPTIONS = "Configuration reference/Object-store read options:python"
AVRO = "Configuration reference/Schema Registry + payload format:python"
BATCH = {
    START, DECORATOR, INSTANCE, REGISTRY, PIPELINES, DEPENDENCIES, TABLES, WIRING, SIGNATURES, STATIC, FAN_OUT, APPEND,
    MERGE, SCD2, INCREMENTAL, TRANSFORMS, CRON, PROGRAMMATIC, FORMATS, WRITE_OPTIONS, READ_OPTIONS, AVRO,
}  # fmt: skip
STREAMING = ("run_streaming_pipeline", "streaming_pipeline(", "run_pipeline(", "StateStore(", "KafkaBackend")

_STREAMS, _PROCESSING = "Streaming pipelines", "Stream processing"
FILE = f"{_STREAMS}/TOML form:toml"
FILE_BY_PYTHON = f"{_STREAMS}/TOML form:python"
FILE_BY_COMMAND = f"{_STREAMS}/TOML form:sh"
TYPED = f"{_STREAMS}/Typed-Python form (decorator, no TOML):python"
TYPED_BY_COMMAND = f"{_STREAMS}/Typed-Python form (decorator, no TOML):sh"
STREAM_FAN_OUT = f"{_STREAMS}/Multi-target fan-out:python"
SQL = f"{_PROCESSING}/SQL transforms:python"
PIVOT = f"{_PROCESSING}/Aggregating many source rows into one JSON-shaped target row:python"
PIVOT_TABLE = f"{_PROCESSING}/Aggregating many source rows into one JSON-shaped target row:sql"
UDF = f"{_PROCESSING}/Python UDFs (@ematix_flow.udf):python"
UDAF = f"{_PROCESSING}/Python aggregate UDFs (@ematix_flow.udaf):python"
WINDOWS = f"{_PROCESSING}/Tumbling / hopping windows:python"
SESSIONS = f"{_PROCESSING}/Session windows:python"
JOINS = f"{_PROCESSING}/Stream-stream joins:python"
CHANGES = f"{_PROCESSING}/Change-data-capture:python"
WATERMARK = "Configuration reference/Watermark behaviour:python"
ERRORS = "Configuration reference/Per-batch error policy:python"
STATE = "Configuration reference/State store:python"
NOTEBOOK = "Python API:python"
SUMMARY = "CLI:text"
STREAMS = {
    FILE_BY_PYTHON, TYPED, STREAM_FAN_OUT, SQL, PIVOT, UDF, UDAF, WINDOWS, SESSIONS, JOINS, CHANGES, WATERMARK, ERRORS,
    STATE, NOTEBOOK,
}  # fmt: skip
