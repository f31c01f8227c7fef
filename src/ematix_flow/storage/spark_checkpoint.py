"""Reads the offsets of Spark's own stream checkpoint, for sources that need them before Spark provides them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ematix_flow.foundation.errors import RunFailed
from ematix_flow.storage.addresses import path_of_address


def last_planned(checkpoint: str, source: int = 0) -> Mapping[str, Any] | None:
    """Return the end offset of one of the stream's sources in the last planned micro-batch; None for a new stream.

    >>> last_planned("/there/is/no/such/folder") is None
    True
    """
    home = path_of_address(checkpoint)
    for folder in (home / "spark" / "offsets", home / "offsets"):
        numbers = sorted(int(item.name) for item in folder.iterdir() if item.name.isdigit()) if folder.is_dir() else []
        for number in reversed(numbers):
            path = folder / str(number)
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
                if len(lines) > source + 2:
                    data: Mapping[str, Any] = json.loads(lines[source + 2]) if lines[source + 2] != "-" else {}
                    return data
            except ValueError:
                raise RunFailed(
                    f"the checkpoint entry {path} is damaged",
                    hint="flow doctor checkpoint NAME says what is wrong with it",
                ) from None
    return None
