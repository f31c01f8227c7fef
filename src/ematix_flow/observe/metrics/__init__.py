"""Metrics: what is counted and measured of runs, and where it goes."""
