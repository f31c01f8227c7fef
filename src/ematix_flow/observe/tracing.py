"""Traces: one span per run, with one span per step below it, for OpenTelemetry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.packages import require_package
from ematix_flow.foundation.redact import mask
from ematix_flow.metrics import otlp
from ematix_flow.metrics.run_metrics import listed_mappings
from ematix_flow.metrics.step_times import TimedStep
from ematix_flow.run_log.records import RunRecord

RUN_SPAN, STEP_SPAN = "flow.pipeline.run", "flow.pipeline.step"
WHAT = "tracing"
_SCHEMES = ("otel", "otel+otlp+grpc", "otel+otlp+http", "otlp", "otlp+grpc", "otlp+http")
_COUNTS = ("rows_read", "rows_inserted", "rows_updated", "rows_unchanged", "rows_closed", "rows_deleted",
           "rows_rejected", "bytes_read", "bytes_staged")  # fmt: skip

_global: Any | None = None


class Tracer(Protocol):
    """The methods that a tracer must have; OpenTelemetry's tracers have them."""

    def start_as_current_span(self, name: str, attributes: dict[str, Any] | None = ...) -> Any:
        """Return a context manager that yields the span."""


def configure_tracer_from_url(url: str) -> Any:
    """Return a tracer for `otel://stdout`, `otel+otlp+grpc://host:port` or `otel+otlp+http://host:port`."""
    text = url.strip()
    scheme = urls.scheme_of(text)
    if scheme not in _SCHEMES or "://" not in text or (scheme == "otel" and text != "otel://stdout"):
        use = "otel://stdout, otel+otlp+grpc://host:4317 or otel+otlp+http://host:4318"
        raise ConfigError("no tracer has that address", hint=urls.scheme_hint(scheme, _SCHEMES, use=use))
    sdk = require_package("opentelemetry.sdk.trace", what=WHAT, extra=otlp.EXTRA)
    export = require_package("opentelemetry.sdk.trace.export", what=WHAT, extra=otlp.EXTRA)
    provider = sdk.TracerProvider(resource=otlp.make_resource(what=WHAT), shutdown_on_exit=False)
    if scheme == "otel":
        import sys

        provider.add_span_processor(export.SimpleSpanProcessor(export.ConsoleSpanExporter(out=sys.stderr)))
    else:
        protocol = next((name for name in (otlp.GRPC, otlp.HTTP) if scheme.endswith(f"+{name}")), None)
        exporter = otlp.make_exporter(otlp.parse_collector(text, protocol=protocol), "traces", what=WHAT)
        provider.add_span_processor(
            export.BatchSpanProcessor(exporter, export_timeout_millis=otlp.SECONDS * 1000, schedule_delay_millis=2000)
        )
    tracer = provider.get_tracer("ematix_flow")
    _providers[id(tracer)] = (tracer, provider)
    return tracer


_providers: dict[int, tuple[Any, Any]] = {}
"""The providers to shut down with their tracers, by the tracer's id."""


def close_tracer(tracer: Any | None) -> None:
    """Send the remaining spans, for a few seconds at most; a tracer made elsewhere is left alone."""
    _, provider = _providers.pop(id(tracer), (None, None))
    if provider is not None:
        provider.force_flush(otlp.SECONDS * 1000)
        provider.shutdown()


def set_global_tracer(tracer: Any | None) -> None:
    """Set the tracer that is used if none is given."""
    global _global
    _global = tracer


def get_global_tracer() -> Any | None:
    """Return the tracer that is used if none is given; None disables tracing."""
    return _global


@contextlib.contextmanager
def pipeline_run_span(pipeline_name: str, attempt: int = 1, tracer: Any | None = None, *,
                      attributes: Mapping[str, Any] | None = None) -> Iterator[Any | None]:  # fmt: skip
    """Yield a span around a run; an exception marks it, masked, and is re-raised. Without a tracer, yield None."""
    used = tracer if tracer is not None else _global
    if used is None:
        yield None
        return
    known = {"flow.pipeline.name": pipeline_name, "flow.pipeline.attempt": attempt, **(attributes or {})}
    failure: BaseException | None = None
    with used.start_as_current_span(RUN_SPAN, attributes=known) as span:
        try:
            yield span
        except BaseException as error:
            # Hidden from the span's own context manager, which would record the error's text unmasked.
            failure = error
            mark_failed(span, error)
    if failure is not None:
        raise failure


def mark_failed(span: Any, error: BaseException) -> None:
    """Record the error on the span."""
    message = mask(str(getattr(error, "what", error)))
    with contextlib.suppress(Exception):
        span.set_attribute("error.type", type(error).__name__)
        status = require_package("opentelemetry.trace", what=WHAT, extra=otlp.EXTRA)
        span.set_status(status.Status(status.StatusCode.ERROR, message))
        span.add_event("exception", {"exception.type": type(error).__name__, "exception.message": message})


def describe_run(span: Any, record: RunRecord, *, spark_jobs: Sequence[int] = (),
                 spark_stages: Sequence[int] = ()) -> None:  # fmt: skip
    """Set the run's id, its counts, and Spark's jobs and stages as attributes of its span."""
    targets = listed_mappings(record.extras.get("targets"))
    counts = {word: sum(int(target.get(word) or 0) for target in targets) for word in _COUNTS}
    known: dict[str, Any] = {
        "flow.run.id": record.run_id,
        "flow.run.status": record.status,
        "flow.targets": [str(target.get("table")) for target in targets],
        **{f"flow.{word.replace('_', '.', 1)}": count for word, count in counts.items() if count},
        "flow.failed_step": record.failed_step,
        "spark.job.ids": list(spark_jobs),
        "spark.stage.ids": list(spark_stages),
    }
    for name, value in known.items():
        if value not in (None, [], ""):
            span.set_attribute(name, value)


def add_steps(tracer: Any | None, span: Any, pipeline: str, steps: Sequence[TimedStep]) -> None:
    """Add one span per step below the run's, with the recorded start and end times."""
    used = tracer if tracer is not None else _global
    if used is None or span is None or not hasattr(used, "start_span"):
        return
    api = require_package("opentelemetry.trace", what=WHAT, extra=otlp.EXTRA)
    inside = api.set_span_in_context(span)
    for step in steps:
        known = {"flow.pipeline.name": pipeline, "flow.step.name": step.name}
        if step.text:
            known["flow.step.about"] = mask(step.text)
        own = used.start_span(STEP_SPAN, context=inside, attributes=known, start_time=step.began)
        if step.rows is not None:
            own.set_attribute("flow.rows", step.rows)
        own.end(end_time=step.ended)
