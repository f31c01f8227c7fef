"""Lineage: which tables and columns a pipeline reads and writes, as OpenLineage tells it."""
