"""Labels and order of the steps of a run."""

from __future__ import annotations

from collections.abc import Iterable

from ematix_flow.foundation.steps import RUN_STEPS

_ORDER = ("function", *(step.name for step in RUN_STEPS))
_DOING = {
    **{step.name: step.label for step in RUN_STEPS},
    "function": "running the function",
    "windows": "loading windows",
    "stream": "streaming",
}


def step_label(step: str) -> str:
    """Return the text for what a run does in this step.

    >>> step_label("read"), step_label("transform[0]:sql")
    ('reading', 'running transform[0]:sql')
    """
    if step.startswith("transform"):
        return f"running {step}" if step != "transform" else "transforming"
    return _DOING.get(step, step)


def ordered_steps(steps: Iterable[str]) -> list[str]:
    """Return each step once, in the order of execution; unknown steps come last.

    >>> ordered_steps(["stage", "plan", "stage"])
    ['plan', 'stage']
    """
    return sorted(dict.fromkeys(steps), key=lambda step: _ORDER.index(step) if step in _ORDER else len(_ORDER))
