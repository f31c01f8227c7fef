"""The steps of a run in people's words."""

from __future__ import annotations

_DOING = {
    "plan": "planning",
    "ensure": "preparing the table",
    "read": "reading",
    "stage": "loading",
    "publish": "publishing",
    "settle": "writing the history",
}


def doing(step: str) -> str:
    """What a run does in this step.

    >>> doing("read"), doing("transform[0]:sql")
    ('reading', 'running transform[0]:sql')
    """
    if step.startswith("transform"):
        return f"running {step}" if step != "transform" else "transforming"
    return _DOING.get(step, step)
