"""What the tests of streams as TOML share: texts, keywords, and the error that a text deserves."""

from __future__ import annotations

from typing import Any

import pytest

from ematix_flow import (
    KafkaConnection,
)
from ematix_flow.config.stream_toml import stream_from_text
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import FlowError

SHORT = """
pipeline_name = "events-to-pg"
source_query  = "events"
idle_pause_ms = 500

[source]
kind = "kafka"
bootstrap_servers = "localhost:9092"
group_id = "ematix-flow"

[target]
kind = "postgres"
url  = "postgres://localhost/mydb"

[target.table]
schema = "public"
name   = "events"
"""
SOURCE = '[source]\nkind = "kafka"\nbootstrap_servers = "localhost:9092"\n'
TARGET = '[target]\nkind = "postgres"\nurl = "postgres://localhost/mydb"\n[target.table]\nschema = "public"\nname = "events"\n'
TOP = 'pipeline_name = "x"\nsource_query = "events"\n'
KAFKA = KafkaConnection("source", bootstrap_servers="localhost:9092")


def keywords(**given: Any) -> StreamSpec:
    return stream_from(StreamOptions.parse(given, None), None)


def failed(text: str) -> FlowError:
    with pytest.raises(FlowError) as caught:
        stream_from_text(text)
    return caught.value


def line_of(error: FlowError) -> int:
    assert error.where is not None
    return error.where.line
