"""Doubles of services that cannot be had here: servers in this process that speak the real HTTP protocol."""

from __future__ import annotations

import base64
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class GoogleSecretManagerDouble:
    """The one request of Google Secret Manager's REST interface that reading takes: `…/versions/V:access`."""

    secrets: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Versions by project and name."""
    forbidden: set[str] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)

    def __enter__(self) -> GoogleSecretManagerDouble:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                status, body = outer.answer(self.path.partition("?")[0])
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        found = re.fullmatch(r"/v1/projects/([^/]+)/secrets/([^/]+)/versions/([^/:]+):access", path)
        if found is None:
            return _error(400, "INVALID_ARGUMENT", "no such method")
        project, name, version = found.groups()
        if name in self.forbidden:
            return _error(403, "PERMISSION_DENIED", f"denied on {name}")
        versions = self.secrets.get((project, name), [])
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return _error(404, "NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        data = base64.b64encode(versions[number - 1].encode()).decode()
        return 200, {
            "name": f"projects/{project}/secrets/{name}/versions/{number}",
            "payload": {"data": data},
        }


def _error(code: int, status: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"error": {"code": code, "message": message, "status": status}}
