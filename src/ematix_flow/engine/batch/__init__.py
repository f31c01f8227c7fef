"""Runs batch pipelines: resolves the source, plans, prepares, stages, checks, publishes, reports."""
