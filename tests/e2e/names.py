"""Names of the blocks of the 0.3.0 document: the way to each through the headings."""

from __future__ import annotations

START = "Start:python"
DECORATOR = "Connections/Declaring connections/@ematix.connection decorator:python"
INSTANCE = "Connections/Declaring connections/Typed instance + register_connection:python"
REGISTRY = "Connections/Schema Registry as a connection:python"
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
