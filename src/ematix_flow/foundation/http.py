"""One JSON request over HTTP: with a timeout, without redirects, and with errors that show no secret."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.packages import __version__
from ematix_flow.foundation.redact import mask

_PASSING = (429, 502, 503, 504)
_PAUSE_SECONDS = 0.5
_SHOWN = 200


class Undelivered(FlowError):
    """The server did not accept the request."""

    retryable = True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect: a redirected POST would arrive as a GET without its body."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post_json(
    url: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, timeout: float = 5.0
) -> str:
    """Post one object and return the response text; a transient error is retried once."""
    request = urllib.request.Request(  # noqa: S310 - the callers accept only http and https
        url,
        data=json.dumps(body, ensure_ascii=False).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": user_agent(), **(headers or {})},
        method="POST",
    )
    try:
        return _sent(request, timeout)
    except Undelivered as error:
        if not error.facts.get("passing"):
            raise
    time.sleep(_PAUSE_SECONDS)
    return _sent(request, timeout)


def site_of(url: str) -> str:
    """Return scheme and host of a URL, which may be shown when the path is a secret.

    >>> site_of("https://ana:pw@hooks.example.com:8443/services/T0/B0/xyz")
    'https://hooks.example.com:8443'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def user_agent() -> str:
    """Return the user agent of this program."""
    return f"ematix-flow/{__version__}"


def _sent(request: urllib.request.Request, timeout: float) -> str:
    where = site_of(request.full_url)
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=timeout) as answer:
            return str(answer.read(65536).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        body = error.read(4096).decode(errors="replace").strip()[:_SHOWN]
        raise Undelivered(
            mask(f"{where} answered {error.code} {error.reason}" + (f": {body}" if body else "")),
            hint="check the address and the key in it",
            status=error.code,
            passing=error.code in _PASSING,
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise Undelivered(
            mask(f"{where} cannot be reached: {reason}"), hint="check the address and the network", passing=True
        ) from None
