"""A stream followed from outside: its counters by HTTP, their pace, and its record in a run log."""

from __future__ import annotations

import re
import socket
from collections import deque
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ematix_flow.metrics.streaming import COUNTERS, GAUGES, PER_PART, PER_SOURCE, StreamMetrics, serve_metrics
from ematix_flow.metrics.streaming_stats import CounterSample
from ematix_flow.run_log import InMemoryRunLog
from ematix_flow.streaming_stats import StreamingStatsRecorder, make_streaming_run_id, scrape_counters, summarize_window


@pytest.fixture
def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_counters_of_one_stream_are_read_from_what_it_serves(port: int) -> None:
    metrics = StreamMetrics("orders")
    metrics.add("rows_consumed_total", 1_234_567)
    url = f"http://127.0.0.1:{port}/metrics"
    assert scrape_counters(url, "orders") is None
    with serve_metrics(metrics, port):
        found = scrape_counters(url, "orders")
        assert found is not None
        assert (found.counters["rows_consumed_total"], found.counters["errors_total"]) == (1_234_567, 0)
        assert scrape_counters(url, "others") is None
    assert scrape_counters("file:///etc/passwd", "orders") is None


def test_a_pace_needs_two_samples_inside_its_window() -> None:
    samples = deque(
        [
            CounterSample(0.0, {"rows_consumed_total": 0, "batches_total": 0}),
            CounterSample(100.0, {"rows_consumed_total": 500, "batches_total": 10}),
            CounterSample(120.0, {"rows_consumed_total": 900, "batches_total": 14}),
        ]
    )
    short = summarize_window(samples, now=121.0, window_seconds=60)
    assert (short["rows_consumed_per_sec"], short["avg_batch_cycle_ms"], short["span_seconds"]) == (20.0, 5000.0, 20.0)
    assert summarize_window(samples, now=121.0, window_seconds=300)["rows_consumed_per_sec"] == 7.5
    alone = summarize_window(samples, now=121.0, window_seconds=5)
    assert set(alone.values()) == {None}


def test_a_stream_that_began_to_count_anew_is_not_slower_than_nothing() -> None:
    samples = deque([CounterSample(0.0, {"rows_written_total": 50}), CounterSample(10.0, {"rows_written_total": 5})])
    told = summarize_window(samples, now=10.0, window_seconds=60)
    assert (told["rows_written_per_sec"], told["avg_batch_cycle_ms"]) == (0.0, None)


def test_the_recorder_keeps_one_run_from_its_start_to_its_end(port: int) -> None:
    log, metrics = InMemoryRunLog(), StreamMetrics("orders")
    with serve_metrics(metrics, port):
        recorder = StreamingStatsRecorder(run_log=log, pipeline_name="orders", metrics_port=port, interval_seconds=0.05)
        with recorder:
            metrics.add("batches_total", 3)
            running = log.get_run(recorder.run_id)
            assert running is not None
            assert (running.status, running.kind) == ("running", "streaming")
    ended = log.get_run(recorder.run_id)
    assert ended is not None
    assert (ended.status, ended.extras["batches_total"]) == ("succeeded", 3)
    assert {"snapshot_at", "stats_1m", "stats_5m"} <= set(ended.extras)


def test_an_error_ends_the_run_as_failed(port: int) -> None:
    log = InMemoryRunLog()
    recorder = StreamingStatsRecorder(run_log=log, pipeline_name="orders", metrics_port=port)
    with pytest.raises(RuntimeError), recorder:
        raise RuntimeError("the broker is gone")
    ended = log.get_run(recorder.run_id)
    assert ended is not None
    assert (ended.status, ended.error_summary) == ("failed", "the broker is gone")


def test_ids_name_the_stream_and_the_second() -> None:
    made = make_streaming_run_id("orders", datetime(2026, 1, 31, 10, 0, tzinfo=timezone.utc))
    assert made.startswith("orders-stream-20260131T100000-")
    assert len(made.rpartition("-")[2]) == 8


def test_the_page_lists_every_figure_of_a_stream() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `ematix_streaming_(\w+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE))
    assert listed == {**COUNTERS, **GAUGES, **PER_PART, **PER_SOURCE}
