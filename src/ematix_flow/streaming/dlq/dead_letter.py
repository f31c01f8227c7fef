"""One dead letter, and the selection of letters for a command."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.names import did_you_mean
from ematix_flow.run_log.records import in_utc, to_text
from ematix_flow.streaming.dlq.letters import LEASED, PENDING

PREVIEW_BYTES = 4096
_KINDS = ("all", "first_n", "ids")


@dataclass(frozen=True)
class DeadLetter:
    """A message that could not be decoded, transformed or written, with the facts known of it."""

    id: str
    pipeline: str
    stage: str
    error: str
    target: str | None
    source_id: str | None
    position: str | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    payload: bytes | None
    payload_format: str
    event_ts: datetime | None
    failed_at: datetime
    attempt: int
    status: str
    leased_until: datetime | None
    version: str | None
    batch: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> DeadLetter:
        """Return the letter of a table row, whatever types its database returns; columns not selected are empty."""
        failed = cls.moment(row.get("failed_at")) or now()
        return cls(
            id=str(row["id"]),
            pipeline=str(row["pipeline_name"]),
            stage=str(row["stage"]),
            error=str(row["error"]),
            target=_text(row.get("target")),
            source_id=_text(row.get("source_id")),
            position=_text(row.get("position")),
            key=_bytes(row.get("message_key")),
            headers=_headers(row.get("headers")),
            payload=_bytes(row.get("payload")),
            payload_format=str(row["payload_format"]),
            event_ts=cls.moment(row.get("event_ts")),
            failed_at=failed,
            attempt=int(row["attempt"]),
            status=str(row["status"]),
            leased_until=cls.moment(row.get("leased_until")),
            version=_text(row.get("pipeline_version")),
            batch=int(row["batch"]),
        )

    @staticmethod
    def moment(value: Any) -> datetime | None:
        """Return a point in time as UTC, from the form that any database returns."""
        if value is None or isinstance(value, datetime):
            return None if value is None else in_utc(value)
        return in_utc(datetime.fromisoformat(str(value).replace("Z", "+00:00")))

    def as_seen(self, at: datetime) -> DeadLetter:
        """Return the letter as users see it: with an expired lease it is pending."""
        over = self.status == LEASED and (self.leased_until is None or self.leased_until <= at)
        return replace(self, status=PENDING) if over else self

    @property
    def place(self) -> Mapping[str, Any]:
        """Return partition, offset and message id, as far as the source has them."""
        position: Mapping[str, Any] = json.loads(self.position) if self.position else {}
        return position

    def to_dict(self, *, preview: int | None = PREVIEW_BYTES) -> dict[str, Any]:
        """Return the letter as JSON data; a long payload is cut unless `preview` is None."""
        size = len(self.payload) if self.payload is not None else None
        cut = preview is not None and size is not None and size > preview
        body = self.payload[:preview] if cut and self.payload is not None else self.payload
        return {
            "id": self.id,
            "pipeline": self.pipeline,
            "stage": self.stage,
            "error": self.error,
            "target": self.target,
            "source_id": self.source_id,
            "position": dict(self.place),
            "key_base64": _base64(self.key),
            "headers": [{"key": key, "value_base64": _base64(value)} for key, value in self.headers],
            "event_ts": to_text(self.event_ts) if self.event_ts else None,
            "failed_at": to_text(self.failed_at),
            "attempt": self.attempt,
            "status": self.status,
            "leased_until": to_text(self.leased_until) if self.leased_until else None,
            "pipeline_version": self.version or None,
            "batch": self.batch,
            "payload_format": self.payload_format,
            "payload_preview": readable_body(body),
            "payload_base64": _base64(body),
            "payload_size": size,
            "payload_truncated": cut,
        }


@dataclass(frozen=True)
class UnfinishedBatches:
    """Micro-batches that some target lacks: they are retried, and may have other letters then."""

    generation: str
    after: int
    """The last micro-batch that is done."""
    behind: Mapping[str, Sequence[int]]
    """Targets that catch up later, with the micro-batches that they missed."""


@dataclass(frozen=True)
class LetterSelection:
    """The selected letters: these ids, the first n, those older than a timespan, or all."""

    ids: tuple[str, ...] = ()
    first: int | None = None
    older_than: timedelta | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LetterSelection:
        """Parse `{"kind": "all"}`, `{"kind": "first_n", "n": 10}` or `{"kind": "ids", "ids": […]}`."""
        kind = str(data.get("kind"))
        if kind == "all":
            return cls()
        if kind == "first_n" and isinstance(data.get("n"), int) and data["n"] > 0:
            return cls(first=int(data["n"]))
        ids = data.get("ids")
        if kind == "ids" and isinstance(ids, list) and ids and all(isinstance(one, str) for one in ids):
            return cls(ids=tuple(ids))
        hint = did_you_mean(kind, _KINDS) if kind not in _KINDS else "first_n takes n, ids takes a list of ids"
        raise DeclarationError(f"{dict(data)!r} selects no dead letters", hint=hint)


def readable_body(body: bytes | None) -> str | None:
    """Return bytes as text where they are UTF-8 text, else as hexadecimal digits.

    >>> readable_body(b"caf\\xc3\\xa9"), readable_body(b"\\x00\\xff"), readable_body(None)
    ('café', '0x00ff', None)
    """
    if body is None:
        return None
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        if exc.start < len(body) - 3 or not exc.start:
            return f"0x{body.hex()}"
        text = body[: exc.start].decode("utf-8")  # a preview that ends within a character
    is_text = not any(ord(one) < 32 and one not in "\t\r\n" for one in text)
    return text if is_text else f"0x{body.hex()}"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers as they came; the table has them as JSON, which leaves out a value of NULL."""
    headers = json.loads(value) if value else []
    return [(item["key"], base64.b64decode(item["value"]) if "value" in item else None) for item in headers]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
