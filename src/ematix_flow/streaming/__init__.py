"""Streams: runs them with their state and dead letters, and lists those that this process has declared."""

from typing import TYPE_CHECKING

from ematix_flow.foundation.names import lazy_exports

if TYPE_CHECKING:
    from ematix_flow.declare.endpoints import Source, Target
    from ematix_flow.declare.streams.parts import CDC, Aggregation, Join, Lookup, StateStore, Watermark, Window
    from ematix_flow.declare.streams.spec import StreamSpec
    from ematix_flow.streaming.python_api import (
        KafkaToKafkaEosPipeline,
        get_streaming_pipeline,
        list_streaming_pipelines,
        register_streaming_pipeline,
        render_streaming_pipeline_toml,
        run_pipeline,
        run_streaming_pipeline,
    )

__all__ = [
    "CDC",
    "Aggregation",
    "Join",
    "KafkaToKafkaEosPipeline",
    "Lookup",
    "Source",
    "StateStore",
    "StreamSpec",
    "Target",
    "Watermark",
    "Window",
    "get_streaming_pipeline",
    "list_streaming_pipelines",
    "register_streaming_pipeline",
    "render_streaming_pipeline_toml",
    "run_pipeline",
    "run_streaming_pipeline",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "CDC": "ematix_flow.declare.streams.parts",
        "Aggregation": "ematix_flow.declare.streams.parts",
        "Join": "ematix_flow.declare.streams.parts",
        "KafkaToKafkaEosPipeline": "ematix_flow.streaming.python_api",
        "Lookup": "ematix_flow.declare.streams.parts",
        "Source": "ematix_flow.declare.endpoints",
        "StateStore": "ematix_flow.declare.streams.parts",
        "StreamSpec": "ematix_flow.declare.streams.spec",
        "Target": "ematix_flow.declare.endpoints",
        "Watermark": "ematix_flow.declare.streams.parts",
        "Window": "ematix_flow.declare.streams.parts",
        "get_streaming_pipeline": "ematix_flow.streaming.python_api",
        "list_streaming_pipelines": "ematix_flow.streaming.python_api",
        "register_streaming_pipeline": "ematix_flow.streaming.python_api",
        "render_streaming_pipeline_toml": "ematix_flow.streaming.python_api",
        "run_pipeline": "ematix_flow.streaming.python_api",
        "run_streaming_pipeline": "ematix_flow.streaming.python_api",
    },
)
