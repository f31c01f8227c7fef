"""Destinations of lineage events: one line each in a file, or one request each to an OpenLineage server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import Undelivered, post_json, site_of
from ematix_flow.foundation.redact import remember_secret

PATH = "/api/v1/lineage"
QUIET_SECONDS = 60.0
SCHEMES = ("file", "http", "https")


class LineageEmitter(Protocol):
    """A destination of lineage events."""

    address: str

    def emit(self, event: Mapping[str, Any]) -> None:
        """Send one event; raise Undelivered on failure."""


class FileEmitter:
    """A file with one JSON object per line, appended; several processes may write the same file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser()
        self.address = f"file://{self._path}"

    def emit(self, event: Mapping[str, Any]) -> None:
        """Append the event with one write, so that lines of two processes do not mix."""
        line = json.dumps(event, ensure_ascii=False) + "\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, line.encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise Undelivered(
                f"{self._path} cannot be written: {error.strerror}", hint="check path and rights"
            ) from None


class HttpEmitter:
    """An OpenLineage server; a URL without a path gets `/api/v1/lineage`.

    An unreachable server is skipped for a minute, so that not every run waits for its timeout.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 3.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("an OpenLineage server begins with http:// or https://", hint="https://host:5000")
        remember_secret(api_key)
        self._url = parts._replace(path=parts.path if parts.path.strip("/") else PATH, query="").geturl()
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout
        self._silent_until = 0.0
        self.address = site_of(url)

    def emit(self, event: Mapping[str, Any]) -> None:
        """Post the event; raise Undelivered on failure."""
        if time.monotonic() < self._silent_until:
            raise Undelivered(f"{self.address} was out of reach a moment ago", hint="is the server running?")
        try:
            post_json(self._url, event, headers=self._headers, timeout=self._timeout)
        except Undelivered as error:
            if error.facts.get("passing"):
                self._silent_until = time.monotonic() + QUIET_SECONDS
            raise


def from_url(url: str) -> LineageEmitter:
    """Return the emitter of a file URL, a plain path, or `https://host[:port][/path][?api_key=${KEY}]`.

    >>> from_url("https://catalog:5000").address
    'https://catalog:5000'
    """
    filled = urls.expand_url(url.strip())
    if not filled:
        raise ConfigError("lineage has an empty address", hint="write lineage.jsonl or https://host:5000")
    scheme = urls.scheme_of(filled) if "://" in filled else ""
    if not scheme:
        return FileEmitter(filled)
    if scheme not in SCHEMES:
        hint = urls.scheme_hint(scheme, SCHEMES, use="a path, file://, http:// or https://")
        raise ConfigError(f"lineage cannot be sent to {scheme}://", hint=hint)
    if scheme == "file":
        return FileEmitter(unquote(filled.partition("://")[2]))
    key = dict(parse_qsl(urlsplit(filled).query)).get("api_key") or os.environ.get("OPENLINEAGE_API_KEY")
    return HttpEmitter(filled, api_key=key)
