"""The steps that the code enters are those that diagrams, labels and the run log know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ematix_flow.foundation.steps import RUN_STEPS

BATCH = Path(__file__).resolve().parents[3] / "src" / "ematix_flow" / "engine" / "batch"


def entered_steps() -> Iterator[str]:
    """Every step name that the code of a run passes to its clock or its progress events."""
    for file in BATCH.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                place = {"_emit": 0, "emit": 0, "ProgressEvent": 1, "StepClock": 2}.get(called)
                names = node.args[place : place + 1] if place is not None else []
                yield from (name.value for name in names if isinstance(name, ast.Constant))


def test_every_step_of_a_run_is_known_and_every_known_one_occurs() -> None:
    known = {step.name for step in RUN_STEPS}
    assert set(entered_steps()) | {"start"} == known | {"function"}
