"""Lineage: the tables and columns that a pipeline reads and writes, and OpenLineage events."""

from ematix_flow.lineage.declared import InputColumn, Lineage, OutputTable, SourceText, lineage_of
from ematix_flow.lineage.emitters import FileEmitter, HttpEmitter, LineageEmitter, from_url
from ematix_flow.lineage.events import run_event

__all__ = [
    "FileEmitter",
    "HttpEmitter",
    "InputColumn",
    "Lineage",
    "LineageEmitter",
    "OutputTable",
    "SourceText",
    "from_url",
    "lineage_of",
    "run_event",
]
