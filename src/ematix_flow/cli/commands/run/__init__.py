"""Commands that run pipelines: run, run-due, backfill, transform."""
