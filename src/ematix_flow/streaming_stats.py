"""The pace of a stream, kept in a run log from outside."""

from ematix_flow.observe.metrics.streaming_stats import (
    StreamingStatsRecorder,
    make_streaming_run_id,
    scrape_counters,
    summarize_window,
)

__all__ = ["StreamingStatsRecorder", "make_streaming_run_id", "scrape_counters", "summarize_window"]
