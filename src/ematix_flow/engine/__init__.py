"""Runs batch pipelines on Spark: sessions, clusters, SQL, and the execution of a run."""
