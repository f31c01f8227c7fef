"""Casts in Spark SQL that fail the load with column and value instead of altering the value."""

from __future__ import annotations

from ematix_flow.declare.types import Column
from ematix_flow.families.carry import BAD_VALUE
from ematix_flow.families.lake.session import on_sail, quote


def raising(column: Column, valid: str, value: str) -> str:
    """Return SQL that gives `value` where `valid` holds, NULL for a NULL column, and otherwise raises BadValue."""
    name = quote(column.name)
    label = f"{BAD_VALUE}|{column.name}|{column.type}|".replace("\\", "").replace("'", "")
    failure = f"raise_error(concat('{label}', left({_shown(name)}, 80)))"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {valid} THEN {value} ELSE {failure} END"


def _shown(name: str) -> str:
    """Return SQL for the value as shown in a message, with Spark's spelling of infinity."""
    said = f"CAST({name} AS STRING)"
    if on_sail():
        said = (
            f"CASE WHEN typeof({name}) IN ('float', 'double') THEN replace({said}, 'inf', 'Infinity') ELSE {said} END"
        )
    return said
