"""Observers of runs: puts alerters, metrics, traces and lineage around a run, and captures its logs."""
