"""Streaming pipelines as frozen values."""
