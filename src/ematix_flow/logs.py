"""Captured logs of runs."""

from ematix_flow.observe.logs import capture_pipeline_logs, logs_dir, prune_old_logs, read_run_logs

__all__ = ["capture_pipeline_logs", "logs_dir", "prune_old_logs", "read_run_logs"]
