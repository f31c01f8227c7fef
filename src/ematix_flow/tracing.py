"""OpenTelemetry traces: a span per run, and one per step below it."""

from ematix_flow.observe.tracing import (
    Tracer,
    close_tracer,
    configure_tracer_from_url,
    get_global_tracer,
    pipeline_run_span,
    set_global_tracer,
)

__all__ = [
    "Tracer",
    "close_tracer",
    "configure_tracer_from_url",
    "get_global_tracer",
    "pipeline_run_span",
    "set_global_tracer",
]
