"""Casts in Spark SQL that end a load with the column and the value instead of bending it."""

from __future__ import annotations

from ematix_flow.declare.types import Column
from ematix_flow.families.carry import BAD_VALUE
from ematix_flow.families.lake.session import on_sail, quote


def raising(column: Column, valid: str, value: str) -> str:
    """Return the SQL of `value` where `valid` holds and of NULL where the column is NULL; other values raise BadValue."""
    name = quote(column.name)
    label = f"{BAD_VALUE}|{column.name}|{column.type}|".replace("\\", "").replace("'", "")
    failure = f"raise_error(concat('{label}', left({_shown(name)}, 80)))"
    return f"CASE WHEN {name} IS NULL THEN NULL WHEN {valid} THEN {value} ELSE {failure} END"


def _shown(name: str) -> str:
    """A value in a message, with Spark's word for infinity."""
    said = f"CAST({name} AS STRING)"
    if on_sail():
        said = (
            f"CASE WHEN typeof({name}) IN ('float', 'double') THEN replace({said}, 'inf', 'Infinity') ELSE {said} END"
        )
    return said
