"""Types that were found in the values of a file, kept for as long as the file is the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ematix_flow.families.lake.kept import Shelf, Stamp

__all__ = ["Stamp", "keep", "recall"]
_SHELF = Shelf("types", rules=1)


def recall(stamp: Stamp, options: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str] | None:
    """Return the types of these columns as they were found in the same files, None when they must be found anew."""
    found = _SHELF.recall(stamp, options)
    known = isinstance(found, dict) and list(found) == list(columns)
    return {name: str(kind) for name, kind in found.items()} if known and found is not None else None


def keep(stamp: Stamp, options: Mapping[str, Any], kinds: Mapping[str, str]) -> None:
    """Keep what was found; not of a file that may change again within one step of the file system's clock."""
    _SHELF.keep(stamp, options, dict(kinds))
