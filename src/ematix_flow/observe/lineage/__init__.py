"""Lineage: the tables and columns that a pipeline reads and writes, as OpenLineage events."""
