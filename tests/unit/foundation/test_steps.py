"""The steps that the code takes are those that diagrams, labels and the run log know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.foundation.steps import MICRO_BATCH_STEPS, RUN_STEPS

SOURCES = Path(__file__).resolve().parents[3] / "src" / "ematix_flow"


def nodes(package: str) -> Iterator[ast.AST]:
    for file in (SOURCES / package).glob("*.py"):
        yield from ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def entered_steps() -> Iterator[str]:
    """Every step name that the code of a run passes to its clock or its progress events."""
    for node in nodes("engine/batch"):
        if isinstance(node, ast.Call):
            place = {"_emit": 0, "ProgressEvent": 1}.get(ast.unparse(node.func).rpartition(".")[2])
            names = node.args[place : place + 1] if place is not None else []
            yield from (name.value for name in names if isinstance(name, ast.Constant))


def test_every_step_of_a_run_is_known_and_every_known_one_occurs() -> None:
    assert {*entered_steps(), "start"} == {"function", *(step.name for step in RUN_STEPS)}


@pytest.mark.parametrize("step", [step.name for step in MICRO_BATCH_STEPS])
def test_every_step_of_a_micro_batch_is_named_in_its_code(step: str) -> None:
    names = {node.attr.lstrip("_") for node in nodes("streaming/runtime") if isinstance(node, ast.Attribute)}
    assert any(name.startswith(step) for name in names)
