"""The manifest of the state as text, and the parts that it names."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ematix_flow.engine.streams.stateful.keeper import Kept
from ematix_flow.foundation.errors import RunFailed

_LISTS = ("parts", "newest", "heard")


def text_of(kept: Kept) -> str:
    """Return the manifest as JSON.

    >>> kept_of(text_of(Kept(7, ("a", "b"), newest=(1, None))), "here").newest
    (1, None)
    """
    return json.dumps(dataclasses.asdict(kept))


def kept_of(text: str, where: str) -> Kept:
    """Return the manifest from its text; unknown fields, which a later version adds, are ignored."""
    try:
        found = json.loads(text)
        known: dict[str, Any] = {
            field.name: tuple(found[field.name]) if field.name in _LISTS else found[field.name]
            for field in dataclasses.fields(Kept)
            if field.name in found
        }
        return Kept(**known)
    except (ValueError, TypeError) as exc:
        raise RunFailed(
            f"the note of the state in {where} is damaged",
            hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
        ) from exc


def named(kept: Kept) -> tuple[str, ...]:
    """Return every part that must stay."""
    return tuple(part for part in (*kept.parts, kept.outcome, kept.late) if part is not None)


def missing(part: str, where: str) -> RunFailed:
    """Return the error for a part that a manifest names and that does not exist."""
    return RunFailed(
        f"the state in {where} has no part {part!r}",
        hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
    )
