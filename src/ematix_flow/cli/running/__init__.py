"""Runs pipelines on behalf of a command."""
