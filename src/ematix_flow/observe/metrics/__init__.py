"""Metrics: counters and measurements of runs, and their destinations."""
