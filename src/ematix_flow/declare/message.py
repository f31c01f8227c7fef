"""The broker message that fired a workflow, as the functions of its jobs receive it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

MOST_BYTES = 1_000_000
"""The longest value in bytes that is stored with a requested run; a longer one stays at its broker."""


@dataclass(frozen=True)
class Message:
    """One message: its content and its position at the broker.

    >>> Message(b'{"file": "a.csv"}', "arrivals-0@7").json()
    {'file': 'a.csv'}
    """

    value: bytes | None
    """None where the message has no value, or one of more than a million bytes."""
    position: str
    """The position at the broker, which identifies a second delivery."""
    source: str = ""
    """The topic or queue."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | None = None
    size: int = 0
    """The size of the value in bytes, also where it is not stored with the run."""

    @property
    def text(self) -> str | None:
        """The value, decoded as UTF-8."""
        return None if self.value is None else self.value.decode()

    def json(self) -> Any:
        """Return the value, parsed as JSON."""
        return None if self.value is None else json.loads(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as a dict for JSON."""
        value = self.value if self.value is None or len(self.value) <= MOST_BYTES else None
        return {
            "value": _coded(value),
            "position": self.position,
            "source": self.source,
            "key": _coded(self.key),
            "headers": [[name, _coded(held)] for name, held in self.headers],
            "timestamp": self.timestamp.isoformat() if self.timestamp else None,
            "size": len(self.value) if self.value is not None else self.size,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Message:
        """Return the message from the result of `to_dict()`."""
        moment = data.get("timestamp")
        return cls(
            _decoded(data.get("value")),
            str(data.get("position") or ""),
            str(data.get("source") or ""),
            _decoded(data.get("key")),
            tuple((str(name), _decoded(held)) for name, held in data.get("headers") or ()),
            datetime.fromisoformat(moment) if moment else None,
            int(data.get("size") or 0),
        )


def _coded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _decoded(value: Any) -> bytes | None:
    return None if value is None else base64.b64decode(value)
