"""What is measured of a run, and the sinks that need no server."""

from __future__ import annotations

import io
import re
import socket
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from ematix_flow.foundation.errors import ConfigError
from ematix_flow.metrics import InMemorySink, MetricsSink, NullSink, StdoutSink, from_url
from ematix_flow.metrics.names import METRICS
from ematix_flow.metrics.prometheus import PrometheusSink
from ematix_flow.metrics.run_metrics import record_run, watermark_lag
from ematix_flow.metrics.step_times import StepTimer, TimedStep
from tests.observe.samples import NOON, record

TARGETS = [
    {"table": "a.b", "rows_read": 100, "rows_inserted": 60, "rows_updated": 30, "rows_unchanged": 10,
     "rows_rejected": 2, "bytes_read": 4096, "bytes_staged": 2048, "watermark": "2026-03-01 11:59:00+00:00"},
    {"table": "a.c", "rows_read": 100, "rows_inserted": 5, "rows_closed": 5, "rows_rejected": 0,
     "bytes_staged": 52, "watermark": "2026-03-01 11:00:00"},
]  # fmt: skip
STEPS = [TimedStep("plan", 0, 500_000_000), TimedStep("stage", 500_000_000, 2_000_000_000)]


def test_a_successful_run_is_counted_and_measured() -> None:
    sink = InMemorySink()
    record_run(sink, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    assert sink.counters == {("orders", "success"): 1}
    assert sink.durations == {"orders": [2.0]}
    assert sink.attempts == {"orders": 0}
    assert sink.values["pipeline_rows_total"] == {
        ("orders", "in"): 100, ("orders", "out"): 100, ("orders", "rejected"): 2,
    }  # fmt: skip
    assert sink.values["pipeline_bytes_total"] == {("orders", "in"): 4096, ("orders", "out"): 2100}
    assert sink.values["pipeline_watermark_lag_seconds"] == {("orders",): 3602.0}
    assert sink.values["pipeline_last_success_timestamp_seconds"] == {
        ("orders",): (NOON + timedelta(seconds=2)).timestamp()
    }
    assert sink.observed["pipeline_step_duration_seconds"] == {("orders", "plan"): [0.5], ("orders", "stage"): [1.5]}


def test_a_failed_run_counts_its_attempt_and_no_success() -> None:
    sink = InMemorySink()
    record_run(sink, record("failed", attempt=3))
    assert sink.counters == {("orders", "failure"): 1}
    assert sink.attempts == {"orders": 3}
    assert "pipeline_last_success_timestamp_seconds" not in sink.values


def test_what_was_not_counted_is_not_shown_as_zero() -> None:
    sink = InMemorySink()
    record_run(sink, record("succeeded", extras={"targets": [{"rows_read": 1, "rows_inserted": 1}]}))
    assert "pipeline_bytes_total" not in sink.values
    assert ("orders", "rejected") not in sink.values["pipeline_rows_total"]


def test_the_steps_of_a_record_count_without_listeners() -> None:
    sink = InMemorySink()
    record_run(sink, record("succeeded", extras={"steps": [{"step": "stage", "seconds": 1.25}]}))
    assert sink.observed["pipeline_step_duration_seconds"] == {("orders", "stage"): [1.25]}


def test_a_sink_of_the_users_own_needs_only_the_documented_methods() -> None:
    class Own:
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def inc_runs(self, name: str, outcome: str) -> None:
            self.heard.append((name, outcome))

        def observe_duration(self, name: str, secs: float) -> None:
            self.heard.append((name, secs))

        def set_attempt(self, name: str, count: int) -> None:
            self.heard.append((name, count))

        def close(self) -> None:
            return None

    own = Own()
    assert isinstance(own, MetricsSink)
    record_run(own, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    assert own.heard == [("orders", "success"), ("orders", 2.0), ("orders", 0)]


@pytest.mark.parametrize("mark", [None, "12345", "abc", 7, ""])
def test_a_watermark_that_is_no_time_has_no_lag(mark: object) -> None:
    assert watermark_lag(mark, NOON) is None


def test_stdout_writes_every_metric_when_it_is_closed() -> None:
    stream = io.StringIO()
    sink = StdoutSink(stream)
    record_run(sink, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    assert stream.getvalue() == ""
    sink.close()
    lines = stream.getvalue().splitlines()
    assert 'METRIC pipeline_runs_total{pipeline="orders",outcome="success"} 1' in lines
    assert 'METRIC pipeline_duration_seconds{pipeline="orders"} count=1 sum=2.000 max=2.000' in lines
    assert {line.removeprefix("METRIC ").partition("{")[0] for line in lines} == {metric.name for metric in METRICS}


def test_stdout_loses_nothing_that_comes_while_it_is_closed() -> None:
    class Busy(io.StringIO):
        def write(self, text: str) -> int:
            if text:
                sink.inc_runs("orders", "failure")  # as another thread does
            return super().write(text)

    stream = Busy()
    sink = StdoutSink(stream)
    sink.inc_runs("orders", "success")
    sink.close()
    assert sink.counters == {("orders", "failure"): 1}
    assert 'outcome="failure"' not in stream.getvalue()


def test_null_takes_everything_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink = NullSink()
    record_run(sink, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    sink.close()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("url", ["", "prometeus://:9", "http://x", "stdout", "prometheus://:99999", "prometheus://:x"])
def test_a_wrong_address_is_an_error_in_words(url: str) -> None:
    with pytest.raises(ConfigError):
        from_url(url)


def test_the_prometheus_endpoint_shows_every_metric_with_its_kind() -> None:
    sink = from_url("prometheus://127.0.0.1:0")
    assert isinstance(sink, PrometheusSink)
    record_run(sink, record("succeeded", extras={"targets": TARGETS}), steps=STEPS)
    with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics") as answer:
        text = answer.read().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {metric.name: metric.kind for metric in METRICS}.items() <= kinds.items()
    assert 'pipeline_rows_total{direction="in",pipeline="orders"} 100.0' in text
    assert 'pipeline_duration_seconds_bucket{le="2.5",pipeline="orders"} 1.0' in text
    sink.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", sink.port or 1), 1)


def test_a_port_that_is_taken_is_an_error_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="choose another"):
            from_url(f"prometheus://127.0.0.1:{taken.getsockname()[1]}")


def test_two_sinks_of_one_process_do_not_disturb_each_other() -> None:
    first, second = PrometheusSink(), PrometheusSink()
    first.inc_runs("orders", "success")
    assert second.registry.get_sample_value("pipeline_runs_total", {"pipeline": "orders", "outcome": "success"}) is None


class _Sign:
    def __init__(self, step: str, text: str = "", rows: int | None = None) -> None:
        self.step, self.text, self.rows = step, text, rows


def test_a_step_lasts_until_the_next_one_and_remembers_its_rows() -> None:
    moments = iter(range(0, 100, 10))
    clock = StepTimer(lambda: next(moments))
    for sign in (
        _Sign("plan"),
        _Sign("stage", "a.b"),
        _Sign("stage", "a.b", 7),
        _Sign("stage", "a.b"),
        _Sign("stage", "a.c"),
    ):
        clock(sign)
    assert clock.finish() == (
        TimedStep("plan", 0, 10),
        TimedStep("stage", 10, 40, "a.b", 7),
        TimedStep("stage", 40, 50, "a.c"),
    )
