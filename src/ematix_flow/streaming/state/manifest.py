"""The state manifest as JSON, and the parts that it names."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from ematix_flow.foundation.errors import RunFailed
from ematix_flow.streaming.state.state_backend import StateManifest

_LISTS = ("parts", "newest", "heard")


def manifest_to_text(manifest: StateManifest) -> str:
    """Return the manifest as JSON.

    >>> manifest_from_text(manifest_to_text(StateManifest(7, ("a", "b"), newest=(1, None))), "here").newest
    (1, None)
    """
    return json.dumps(dataclasses.asdict(manifest))


def manifest_from_text(text: str, where: str) -> StateManifest:
    """Return the manifest from its text; unknown fields, which a later version adds, are ignored."""
    try:
        data = json.loads(text)
        known: dict[str, Any] = {
            field.name: tuple(data[field.name]) if field.name in _LISTS else data[field.name]
            for field in dataclasses.fields(StateManifest)
            if field.name in data
        }
        return StateManifest(**known)
    except (ValueError, TypeError) as exc:
        raise RunFailed(
            f"the note of the state in {where} is damaged",
            hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
        ) from exc


def parts_named(manifest: StateManifest) -> tuple[str, ...]:
    """Return every part that must stay."""
    return tuple(part for part in (*manifest.parts, manifest.outcome, manifest.late) if part is not None)


def missing_part(part: str, where: str) -> RunFailed:
    """Return the error for a part that a manifest names and that does not exist."""
    return RunFailed(
        f"the state in {where} has no part {part!r}",
        hint="bring it back from a backup, or begin anew: flow stream rewind NAME --to earliest",
    )
