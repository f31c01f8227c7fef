"""Names of the blocks of the 0.3.0 document, the way to each through the headings; and of those of the 0.1.2 one."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Lines:
    """Where a sample begins in a document without fences; without `end` it ends where the lines stop being code."""

    first: str
    after: str = ""
    end: str = ""


QUICKSTART, TWO_DATABASES, IN_CODE = "Quickstart:python", "Two databases:python", "Connections in code:python"
STATIC_SOURCE, STREAM_FILE, RUN_FILE = "Static source:python", "Stream file:toml", "Run a file:python"
CONSUME_FILE, TYPED_STREAM, EARLY_WINDOWS = "Run a file:sh", "Typed stream:python", "Windows:python"
EARLY_SESSIONS, EARLY_JOINS, KNOBS = "Sessions:python", "Joins:python", "Knobs:python"
ARCHIVE, EARLY_NOTEBOOK = "Archive:python", "Notebook:python"
EARLY = {
    QUICKSTART: Lines("from typing import Annotated", after="Quickstart 1: declarative Postgres pipeline (v0.1)"),
    TWO_DATABASES: Lines("@ematix.pipeline(", after="explicitly:"),
    IN_CODE: Lines("from ematix_flow import (", after="Declaring connections in code (decorator)"),
    STATIC_SOURCE: Lines("@ematix.pipeline(", after="The static form lets you skip writing SELECT * boilerplate:"),
    STREAM_FILE: Lines("# pipeline.toml", end="2. Run from Python:"),
    RUN_FILE: Lines("from ematix_flow import run_pipeline", after="2. Run from Python:"),
    CONSUME_FILE: Lines(
        "cargo run --release --bin flow -- consume pipeline.toml \\",
        end="Or skip the TOML entirely (Π.3 typed-Python form)",
    ),
    TYPED_STREAM: Lines("# my_pipelines.py", after="Or skip the TOML entirely (Π.3 typed-Python form)"),
    EARLY_WINDOWS: Lines(
        "from ematix_flow import (", after="Tumbling window aggregation (count events per user per minute):"
    ),
    EARLY_SESSIONS: Lines(
        "from ematix_flow import StateStore # new in 39.5a",
        after="Session window (per-user activity sessions, 5-minute idle gap):",
    ),
    EARLY_JOINS: Lines(
        "from ematix_flow import Join, Source", after="Driven from typed Python via sources=[Source(...)]:"
    ),
    KNOBS: Lines("from ematix_flow import Watermark", after="Advanced knobs (Π.1)"),
    ARCHIVE: Lines(
        "from ematix_flow import ObjectStoreS3Connection, Target", after="Object-store target with compression (Π.1.4)"
    ),
    EARLY_NOTEBOOK: Lines(
        "from ematix_flow._core import KafkaBackend", after="Python API: streaming backends from a notebook"
    ),
}
"""The samples of the 0.1.2 document by the name of their block in the twin: the lines they stand between."""
