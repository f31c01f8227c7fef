"""Streams: their parts, functions that run them, and the streams declared in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.streams import registry
from ematix_flow.declare.streams.options import StreamOptions, stream_from
from ematix_flow.declare.streams.placement import kind_of
from ematix_flow.declare.streams.spec import EXACTLY_ONCE, StreamSpec
from ematix_flow.declare.udfs import functions_of
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.signatures import with_signature_of

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog
    from ematix_flow.streaming.runtime.runner import StreamOutcome


@dataclass(frozen=True)
class _Registered:
    spec: StreamSpec


def run_pipeline(*, config: str | os.PathLike[str] | None = None, config_str: str | None = None,
                 metrics_port: int | None = None, pipeline_name: str | None = None, run_log_url: str | None = None,
                 once: bool = False, udfs: Sequence[Any] | None = None,
                 aggregate_udfs: Sequence[Any] | None = None) -> StreamOutcome:  # fmt: skip
    """Run the stream that a TOML file or text declares, until it is stopped; with `once`, until all data is read.

    `pipeline_name` names a stream whose declaration has no name. For any other it is a label: the checkpoint is
    identified by the stream's own name, and with `metrics_port` the run's figures are also recorded under the label.
    `udfs` and `aggregate_udfs` are functions for its SQL, which a file cannot contain.
    """
    from ematix_flow.config.stream_toml import stream_from_file, stream_from_text

    if (config is None) == (config_str is None):
        raise DeclarationError(
            "give exactly one of config= and config_str=", where=caller(), hint='run_pipeline(config="pipeline.toml")'
        )
    if config is not None:
        spec = stream_from_file(config, name=pipeline_name)
    else:
        spec = stream_from_text(str(config_str), name=pipeline_name)
    spec = _with_functions(spec, tuple(udfs or ()), tuple(aggregate_udfs or ()))
    return run_stream(spec, once=once, metrics_port=metrics_port, run_log_url=run_log_url, label=pipeline_name)


def _with_functions(spec: StreamSpec, udfs: tuple[Any, ...], aggregate_udfs: tuple[Any, ...]) -> StreamSpec:
    if not udfs and not aggregate_udfs:
        return spec
    if spec.transform_sql is None:
        raise DeclarationError(
            f"stream {spec.name!r} has no SQL that could call functions", where=caller(),
            hint="write a [transform] with sql = … into the file",
        )  # fmt: skip
    functions_of(udfs, aggregate_udfs)
    return replace(spec, udfs=udfs, aggregate_udfs=aggregate_udfs)


@with_signature_of(StreamOptions)
def run_streaming_pipeline(*, once: bool = False, run_log_url: str | None = None, **options: Any) -> StreamOutcome:
    """Run a stream until it is stopped; with `once`, until all data is read.

    Returns `total_rows`, `iterations` and `shutdown_triggered`. The keywords are those of `@ematix.streaming_pipeline`.
    """
    where = caller()
    spec = stream_from(StreamOptions.parse(options, where, door="run_streaming_pipeline"), where)
    return run_stream(spec, once=once, run_log_url=run_log_url)


def run_stream(spec: StreamSpec, *, once: bool = False, metrics_port: int | None = None,
               run_log_url: str | None = None, label: str | None = None) -> StreamOutcome:  # fmt: skip
    """Run a stream for the functions of this module; record its figures also under a `label` that is not its name."""
    from ematix_flow.config.stream_connections import with_resolved_connections
    from ematix_flow.run_log.default import default_run_log
    from ematix_flow.run_log.urls import from_url
    from ematix_flow.streaming.runtime import runner

    spec = with_resolved_connections(spec)
    port = metrics_port if metrics_port is not None else spec.metrics_port
    run_log = from_url(run_log_url) if run_log_url is not None else default_run_log()
    try:
        with _recorded_under_label(label, spec.name, run_log, port):
            return runner.run_stream(spec, once=once, metrics_port=port, run_log=run_log)
    finally:
        if run_log_url is not None and run_log is not None:
            run_log.close()


def _recorded_under_label(
    label: str | None, name: str, run_log: RunLog | None, port: int | None
) -> AbstractContextManager[object]:
    from ematix_flow.metrics.streaming_stats import StreamingStatsRecorder

    if label is None or label == name or run_log is None or not port:
        return nullcontext()
    return StreamingStatsRecorder(run_log=run_log, pipeline_name=label, metrics_port=port, counted_as=name)


class KafkaToKafkaEosPipeline:
    """A Kafka-to-Kafka stream with `delivery="exactly_once"`, for consumers that read only committed messages.

    It takes the keywords of `run_streaming_pipeline`.
    """

    @with_signature_of(StreamOptions)
    def __init__(self, **options: Any) -> None:
        where, door = caller(), type(self).__name__
        parsed = StreamOptions.parse({"delivery": EXACTLY_ONCE, **options}, where, door=door)
        self.spec = stream_from(parsed, where)
        ends = [*self.spec.sources, *self.spec.targets]
        if self.spec.delivery != EXACTLY_ONCE or {kind_of(end.connection) for end in ends} - {None, "kafka"}:
            raise DeclarationError(
                f"{door} is for Kafka on both sides, exactly once", where=where, hint="use run_streaming_pipeline"
            )

    def run(self, *, once: bool = False, metrics_port: int | None = None,
            run_log_url: str | None = None) -> StreamOutcome:  # fmt: skip
        """Run until stopped; with `once`, until all data is read."""
        return run_stream(self.spec, once=once, metrics_port=metrics_port, run_log_url=run_log_url)


def register_streaming_pipeline(name: str, captured: Mapping[str, Any]) -> None:
    """Register a stream under its name, from the keywords of `run_streaming_pipeline`; raise for a name in use."""
    where = caller()
    keywords = {**captured, "name": name}
    registry.register(_Registered(stream_from(StreamOptions.parse(keywords, where, door="a stream"), where)))


def get_streaming_pipeline(name: str) -> dict[str, Any] | None:
    """Return the keywords of the stream of that name; None when there is none."""
    stream = registry.find(name)
    return dict(stream.captured) if stream is not None else None


def list_streaming_pipelines() -> list[str]:
    """Return the names of all declared streams, sorted."""
    return sorted(registry.streams())


def render_streaming_pipeline_toml(name: str) -> str:
    """Return the declared stream of that name as TOML, without secrets; raise a KeyError when there is none."""
    from ematix_flow.config.stream_render import render

    return render(registry.get(name))
