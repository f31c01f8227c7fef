"""A real OpenTelemetry collector receives metrics and spans, by gRPC and by HTTP; what it got is read from its output."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import Unreachable
from ematix_flow.metrics import from_url
from ematix_flow.metrics.run_metrics import record_run
from ematix_flow.metrics.step_times import TimedStep
from ematix_flow.observe import tracing
from ematix_flow.tracing import (
    close_tracer,
    configure_tracer_from_url,
    get_global_tracer,
    pipeline_run_span,
    set_global_tracer,
)
from tests.observe.samples import record
from tests.observe.test_metrics import STEPS, TARGETS
from tests.services.telemetry import start_collector
from tests.services.wanted import or_skip


@dataclass(frozen=True)
class Collector:
    """A collector and what it has written down."""

    grpc: int
    http: int
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def eventually(self, look: Callable[[str], Any], *, seconds: float = 30) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := look(self.text())) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Built once into the tests' cache, which takes some minutes."""
    folder = tmp_path_factory.mktemp("collector")
    server, grpc, http, log = or_skip(lambda: start_collector(folder))
    yield Collector(grpc, http, log)
    server.stop()


def points(text: str, metric: str) -> list[tuple[dict[str, str], str]]:
    """Labels and values of a metric's data points, as the collector shows them."""
    found = []
    for block in re.split(r"^Metric #\d+$", text, flags=re.MULTILINE):
        if f"-> Name: {metric}\n" not in block:
            continue
        for point in re.split(r"^(?:Number|Histogram)DataPoints #\d+$", block, flags=re.MULTILINE)[1:]:
            labels = dict(re.findall(r"-> (\w+): Str\((.*?)\)", point))
            value = re.search(r"^(?:Value|Sum): (\S+)", point, re.MULTILINE)
            found.append((labels, value[1] if value else ""))
    return found


@pytest.mark.parametrize("scheme", ["otlp+grpc", "otlp+http"])
def test_the_collector_gets_every_metric_of_a_run(collector: Collector, scheme: str) -> None:
    name = f"orders_{scheme[5:]}"
    port = collector.grpc if scheme.endswith("grpc") else collector.http
    sink = from_url(f"{scheme}://127.0.0.1:{port}")
    record_run(sink, record("succeeded", name, extras={"targets": TARGETS}), steps=STEPS)
    sink.close()

    def values(metric: str, **labels: str) -> list[float]:
        wanted = {"pipeline": name, **labels}
        return [float(value) for known, value in points(collector.text(), metric) if known == wanted]

    assert collector.eventually(lambda _: values("pipeline_runs_total", outcome="success")) == [1]
    assert values("pipeline_rows_total", direction="in") == [100]
    assert values("pipeline_bytes_total", direction="out") == [2100]
    assert values("pipeline_retry_attempt") == [0]
    assert values("pipeline_duration_seconds") == [2]
    assert values("pipeline_step_duration_seconds", step="stage") == [1.5]
    assert values("pipeline_watermark_lag_seconds") == [3602]
    assert values("pipeline_last_success_timestamp_seconds") == [1772366402]


def test_histograms_have_the_declared_bounds(collector: Collector) -> None:
    sink = from_url(f"otlp+http://127.0.0.1:{collector.http}")
    sink.observe_duration("bounded", 4000.0)
    sink.close()
    assert collector.eventually(lambda text: "ExplicitBounds #11: 10800" in text.replace(".000000", ""))


def span_block(text: str, pipeline: str, name: str) -> list[str]:
    """What the collector says of the spans of that name."""
    blocks = re.split(r"^Span #\d+$", text, flags=re.MULTILINE)[1:]
    return [block for block in blocks if re.search(rf"Name\s+: {name}\n", block) and f"Str({pipeline})" in block]


@pytest.mark.parametrize("scheme", ["otel+otlp+grpc", "otel+otlp+http"])
def test_the_collector_gets_a_span_per_run_and_one_per_step_below_it(collector: Collector, scheme: str) -> None:
    name = f"traced_{scheme[10:]}"
    port = collector.grpc if scheme.endswith("grpc") else collector.http
    tracer = configure_tracer_from_url(f"{scheme}://127.0.0.1:{port}")
    began = time.time_ns()
    steps = [
        TimedStep("plan", began, began + 10**9),
        TimedStep("stage", began + 10**9, began + 3 * 10**9, "raw.orders", 100),
    ]
    with pipeline_run_span(name, 2, tracer) as span:
        tracing.describe_run(
            span, record("succeeded", name, extras={"targets": TARGETS}), spark_jobs=[3, 4], spark_stages=[7]
        )
        tracing.add_steps(tracer, span, name, steps)
    close_tracer(tracer)
    (run,) = collector.eventually(lambda text: span_block(text, name, tracing.RUN_SPAN))
    for attribute in (
        f"flow.pipeline.name: Str({name})",
        "flow.pipeline.attempt: Int(2)",
        "flow.run.id: Str(1a2b3c4d-0000-4000-8000-000000000000)",
        "flow.rows.read: Int(200)",
        "flow.rows.rejected: Int(2)",
        "spark.job.ids: Slice([3,4])",
        "spark.stage.ids: Slice([7])",
    ):
        assert attribute in run
    inside = span_block(collector.text(), name, tracing.STEP_SPAN)
    assert len(inside) == 2
    own_id = re.search(r"\n\s+ID\s+: (\w+)", run)
    assert own_id is not None
    assert all(re.search(rf"Parent ID\s+: {own_id[1]}", block) for block in inside)
    stage = next(block for block in inside if "Str(stage)" in block)
    assert "flow.rows: Int(100)" in stage
    assert "flow.step.about: Str(raw.orders)" in stage


def test_a_failed_run_is_an_error_span_without_the_secret(collector: Collector) -> None:
    redact.remember_secret("canary-geheim-77")
    tracer = configure_tracer_from_url(f"otel+otlp+http://127.0.0.1:{collector.http}")
    with pytest.raises(Unreachable, match="no server answers"), pipeline_run_span("broken", tracer=tracer):
        raise Unreachable("no server answers at postgres://ana:canary-geheim-77@db")
    close_tracer(tracer)
    (run,) = collector.eventually(lambda text: span_block(text, "broken", tracing.RUN_SPAN))
    assert re.search(r"Status code\s+: Error", run)
    assert re.search(r"Status message\s+: no server answers at postgres://ana:\*\*\*@db", run)
    assert "exception.type: Str(Unreachable)" in run
    assert "canary-geheim-77" not in collector.text()


def test_the_global_tracer_is_used_where_none_is_given(collector: Collector) -> None:
    tracer = configure_tracer_from_url(f"otlp://127.0.0.1:{collector.grpc}")
    set_global_tracer(tracer)
    assert get_global_tracer() is tracer
    with pipeline_run_span("everywhere"):
        pass
    close_tracer(tracer)
    assert collector.eventually(lambda text: span_block(text, "everywhere", tracing.RUN_SPAN))


def test_without_a_tracer_a_span_costs_nothing() -> None:
    with pipeline_run_span("orders") as span:
        assert span is None


def test_spans_can_be_written_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    tracer = configure_tracer_from_url("otel://stdout")
    with pipeline_run_span("printed", tracer=tracer):
        pass
    close_tracer(tracer)
    written = capsys.readouterr()
    assert '"flow.pipeline.name": "printed"' in written.err
    assert written.out == ""


@pytest.mark.parametrize("url", ["", "jaeger://x", "otel://", "otel://file", "otel+otlp+udp://x", "stdout"])
def test_a_wrong_address_of_traces_is_an_error_in_words(url: str) -> None:
    with pytest.raises(ValueError, match="no tracer has that address"):
        configure_tracer_from_url(url)


@pytest.mark.parametrize("scheme", ["otlp+grpc", "otlp+http"])
def test_a_collector_that_is_not_there_is_reported_once_and_holds_a_run_up_for_seconds_only(
    scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    nowhere = f"127.0.0.1:{1 if scheme.endswith('grpc') else 2}"
    sink = from_url(f"{scheme}://{nowhere}")
    record_run(sink, record("succeeded"))
    sink.close()
    tracer = configure_tracer_from_url(f"otel+{scheme}://{nowhere}")
    with pipeline_run_span("orders", tracer=tracer):
        pass
    close_tracer(tracer)
    assert time.monotonic() - began < 60
    (line,) = caplog.messages
    assert f"the OpenTelemetry collector at {nowhere} does not work" in line


def test_a_tracer_of_the_users_own_needs_only_the_documented_method() -> None:
    class Span:
        def __enter__(self) -> Span:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    class Own:
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def start_as_current_span(self, name: str, attributes: dict[str, Any] | None = None) -> Span:
            self.heard.append((name, attributes))
            return Span()

    own = Own()
    with pipeline_run_span("orders", 3, own) as span:
        tracing.add_steps(own, span, "orders", STEPS)
    with pytest.raises(ValueError, match="mine"), pipeline_run_span("orders", 3, own):
        raise ValueError("mine")
    assert own.heard == [("flow.pipeline.run", {"flow.pipeline.name": "orders", "flow.pipeline.attempt": 3})] * 2
