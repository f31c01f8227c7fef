"""A subset of a stage, usable as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ematix_flow.contract.write import Stage
from ematix_flow.families.sql.dialect import SqlDialect


def narrowed(stage: Stage, dialect: SqlDialect, columns: Sequence[str], where: str) -> Stage:
    """Return a stage of these columns and matching rows; its relation is a query, which `FROM … AS s` accepts."""
    is_query = stage.relation.lstrip().upper().startswith("SELECT")
    whole = f"({stage.relation})" if is_query else stage.relation
    return replace(stage, relation=f"(SELECT {dialect.names(tuple(columns))} FROM {whole} AS whole WHERE {where})")
