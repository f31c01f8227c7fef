"""Observers of runs: alerts, metrics, traces, lineage, captured logs; and the stores that secrets are read from."""
