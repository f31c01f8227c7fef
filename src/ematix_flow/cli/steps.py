"""The steps of a run in people's words."""

from __future__ import annotations

from collections.abc import Iterable

_ORDER = ("function", "plan", "start", "ensure", "read", "stage", "check", "publish", "settle", "transform")
_DOING = {
    "function": "running the function",
    "plan": "planning",
    "start": "starting Spark",
    "ensure": "preparing the table",
    "read": "reading",
    "stage": "loading",
    "check": "checking the rows",
    "publish": "publishing",
    "settle": "writing the history",
    "windows": "loading windows",
    "stream": "streaming",
}


def doing(step: str) -> str:
    """What a run does in this step.

    >>> doing("read"), doing("transform[0]:sql")
    ('reading', 'running transform[0]:sql')
    """
    if step.startswith("transform"):
        return f"running {step}" if step != "transform" else "transforming"
    return _DOING.get(step, step)


def in_order(steps: Iterable[str]) -> list[str]:
    """Each once, in the order in which a run goes through them; one that is not known comes last.

    >>> in_order(["stage", "plan", "stage"])
    ['plan', 'stage']
    """
    return sorted(dict.fromkeys(steps), key=lambda step: _ORDER.index(step) if step in _ORDER else len(_ORDER))
