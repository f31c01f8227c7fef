"""A cache of the types inferred from files, valid while the files are unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ematix_flow.families.lake.kept import Shelf, Stamp

__all__ = ["Stamp", "keep", "recall"]
_SHELF = Shelf("types", rules=1)


def recall(stamp: Stamp, options: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str] | None:
    """Return the types of these columns cached for the same files, None where they must be inferred."""
    found = _SHELF.recall(stamp, options)
    known = isinstance(found, dict) and list(found) == list(columns)
    return {name: str(kind) for name, kind in found.items()} if known and found is not None else None


def keep(stamp: Stamp, options: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Cache the types, unless a file is so new that it may change again within the file system's clock resolution."""
    _SHELF.keep(stamp, options, dict(kinds))
