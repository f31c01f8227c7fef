"""Compares a table with its declaration and plans the steps that remove the differences."""

from __future__ import annotations

from collections.abc import Callable

from ematix_flow.contract.backend import DdlPlanner
from ematix_flow.contract.ddl import (
    AddColumn,
    ChangeType,
    ColumnState,
    CreateTable,
    DdlPlan,
    DdlStep,
    Difference,
    DropNotNull,
    TableState,
    is_lossless,
)
from ematix_flow.contract.shape import TargetShape
from ematix_flow.declare.types import Column, ColumnType
from ematix_flow.foundation.errors import DriftError
from ematix_flow.foundation.location import Location

StoredType = Callable[[TargetShape, Column], "ColumnType | None"]


def plan_ddl(shape: TargetShape, state: TableState | None, stored_type: StoredType) -> DdlPlan:
    """Return the steps that are applied automatically (create, add, widen) and the differences that are drift."""
    if state is None:
        return DdlPlan((CreateTable(shape.table),))
    existing = {column.name: column for column in state.columns}
    steps: list[DdlStep] = []
    drift: list[Difference] = []
    for column in shape.table.columns:
        known = existing.get(column.name)
        if known is None:
            _missing(column, steps, drift)
        else:
            _compare(column, known, stored_type(shape, column), steps, drift)
    for name, extra in existing.items():
        if name not in shape.table.column_names:
            drift.append(_extra(extra))
    wanted_key = shape.table.primary_key
    if wanted_key and state.primary_key and set(wanted_key) != set(state.primary_key):
        text = f"primary key is ({', '.join(state.primary_key)}), declared is ({', '.join(wanted_key)})"
        drift.append(Difference(text, harmless=True))
    return DdlPlan(tuple(steps), tuple(drift))


def _missing(column: Column, steps: list[DdlStep], drift: list[Difference]) -> None:
    if column.nullable:
        steps.append(AddColumn(column))
    else:
        text = f"+ {column.name} {column.type} NOT NULL is declared and missing (old rows have no value for it)"
        drift.append(Difference(text, AddColumn(column)))


def _compare(
    column: Column, known: ColumnState, wanted: ColumnType | None, steps: list[DdlStep], drift: list[Difference]
) -> None:
    if wanted is not None and known.type != wanted:
        change = ChangeType(column, known)
        if known.type is not None and is_lossless(known.type, wanted):
            steps.append(change)
        else:
            fits = known.type is not None and is_lossless(wanted, known.type)
            drift.append(
                Difference(f"~ {column.name} is {known.native}, declared is {column.type}", change, harmless=fits)
            )
    required = not column.nullable or column.primary_key
    if not required and not known.nullable:
        drift.append(Difference(f"~ {column.name} is NOT NULL, declared is nullable", DropNotNull(known)))
    elif required and known.nullable and not column.primary_key:
        drift.append(Difference(f"~ {column.name} is nullable, declared is NOT NULL", harmless=True))


def _extra(column: ColumnState) -> Difference:
    text = f"- {column.name} {column.native} is in the table and not declared"
    if column.nullable:
        return Difference(text, harmless=True)
    return Difference(f"{text}, and it is NOT NULL", DropNotNull(column))


def apply_drift_policy(
    plan: DdlPlan, policy: str, *, table: str, where: Location | None
) -> tuple[tuple[DdlStep, ...], tuple[str, ...]]:
    """Return the steps to execute and the warnings under a policy; raise `DriftError` where the policy forbids them."""
    if not plan.drift:
        return plan.steps, ()
    if policy == "evolve":
        stuck = [item for item in plan.drift if item.repair is None and not item.harmless]
        if stuck:
            raise _drift_error(table, stuck, where, "change the table by hand, or declare what is there")
        repairs = tuple(item.repair for item in plan.drift if item.repair is not None and not item.harmless)
        rest = tuple(item.text for item in plan.drift if item.harmless)
        return plan.steps + repairs, rest
    if policy == "warn":
        stuck = [item for item in plan.drift if not item.harmless]
        if stuck:
            raise _drift_error(table, stuck, where, 'rows cannot be loaded like this; try on_drift="evolve"')
        return plan.steps, tuple(item.text for item in plan.drift)
    raise _drift_error(table, list(plan.drift), where, 'declare what is there, or set on_drift="warn" or "evolve"')


def with_unique(plan: DdlPlan, shape: TargetShape, planner: DdlPlanner) -> DdlPlan:
    """Return the plan with added or dropped UNIQUE constraints as harmless drift, where the system reports them."""
    groups = planner.unique_groups(shape)
    if groups is None:
        return plan
    existing, declared = {frozenset(group) for group in groups}, {frozenset(group) for group in shape.table.unique}
    differences = [f"+ UNIQUE ({', '.join(sorted(group))}) is declared and missing" for group in declared - existing]
    differences += [
        f"- UNIQUE ({', '.join(sorted(group))}) is in the table and not declared" for group in existing - declared
    ]
    return DdlPlan(plan.steps, plan.drift + tuple(Difference(text, harmless=True) for text in sorted(differences)))


def differs(table: str, differences: list[str], *, where: Location | None) -> DriftError:
    """Return the error for a table that differs from its declaration and must not be changed."""
    drift = [Difference(text) for text in differences]
    return _drift_error(table, drift, where, 'change it with on_drift="evolve", or declare what is there')


def _drift_error(table: str, drift: list[Difference], where: Location | None, hint: str) -> DriftError:
    lines = "\n".join(f"    {item.text}" for item in drift)
    return DriftError(f"{table} differs from its declaration:\n{lines}", where=where, hint=hint, differences=len(drift))
