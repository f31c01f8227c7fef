"""What others learn of runs: alerts, metrics, traces, lineage, captured logs; and the stores that secrets come from."""
