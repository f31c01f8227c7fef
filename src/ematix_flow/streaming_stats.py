"""A recorder that scrapes the metrics of a running stream and writes them to a run log."""

from ematix_flow.metrics.streaming_stats import (
    StreamingStatsRecorder,
    make_streaming_run_id,
    scrape_counters,
    summarize_window,
)

__all__ = ["StreamingStatsRecorder", "make_streaming_run_id", "scrape_counters", "summarize_window"]
