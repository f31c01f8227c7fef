"""Vaults to test with: a double that speaks Vault's HTTP protocol, and a real one where the environment names it.

`EMATIX_FLOW_TEST_VAULT=http://root-token@host:port` runs the same tests against a real, empty server as well.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Answer = tuple[int, Any]
_DENIED: Answer = (403, {"errors": ["permission denied"]})
_NOTHING: Answer = (404, {"errors": []})


class VaultDouble:
    """As much of Vault as reading secrets takes: tokens, AppRole, policies on paths, both versions of the KV engine."""

    def __init__(self) -> None:
        self.root = f"hvs.{secrets.token_hex(12)}"
        self._tokens: dict[str, list[str]] = {self.root: ["*"]}
        self._policies: dict[str, list[str]] = {}
        self._roles: dict[str, dict[str, Any]] = {}
        self._mounts: dict[str, str] = {}
        self._stored: dict[str, list[Any]] = {}

    def answer(self, method: str, path: str, token: str, body: Any) -> Answer:
        """What Vault would say."""
        if path == "auth/approle/login":
            return self._login(body)
        if token not in self._tokens or not any(fnmatch.fnmatch(path, pattern) for pattern in self._tokens[token]):
            return _DENIED
        for pattern, do in (
            (r"sys/mounts/(\w+)", self._mount),
            (r"sys/auth/approle", lambda *_: (204, None)),
            (r"sys/policies/acl/(\w+)", self._policy),
            (r"auth/approle/role/(\w+)", self._role),
            (r"auth/approle/role/(\w+)/role-id", self._role_id),
            (r"auth/approle/role/(\w+)/secret-id", self._secret_id),
            (r"auth/token/revoke", self._revoke),
        ):
            found = re.fullmatch(pattern, path)
            if found:
                return do(body, *found.groups())
        return self._kv(method, path, body)

    def _mount(self, body: Any, name: str) -> Answer:
        self._mounts[name] = body["options"]["version"]
        return 204, None

    def _policy(self, body: Any, name: str) -> Answer:
        self._policies[name] = re.findall(r'path "([^"]+)"', body["policy"])
        return 204, None

    def _role(self, body: Any, name: str) -> Answer:
        self._roles[name] = {"policies": body["token_policies"], "role_id": secrets.token_hex(8), "secret_ids": []}
        return 204, None

    def _role_id(self, _: Any, name: str) -> Answer:
        return 200, {"data": {"role_id": self._roles[name]["role_id"]}}

    def _secret_id(self, _: Any, name: str) -> Answer:
        made = secrets.token_hex(16)
        self._roles[name]["secret_ids"].append(made)
        return 200, {"data": {"secret_id": made}}

    def _login(self, body: Any) -> Answer:
        for role in self._roles.values():
            if role["role_id"] == body.get("role_id") and body.get("secret_id") in role["secret_ids"]:
                token = f"hvs.{secrets.token_hex(12)}"
                self._tokens[token] = self._policies[role["policies"]]
                return 200, {"auth": {"client_token": token, "lease_duration": 3600, "renewable": True}}
        return 400, {"errors": ["invalid role or secret ID"]}

    def _revoke(self, body: Any) -> Answer:
        self._tokens.pop(body["token"], None)
        return 204, None

    def _kv(self, method: str, path: str, body: Any) -> Answer:
        mount, _, rest = path.partition("/")
        version = self._mounts.get(mount)
        if version is None or (version == "2" and not rest.startswith("data/")):
            return 404, {"errors": [f'no handler for route "{path}". route entry not found.']}
        if method in ("POST", "PUT"):
            self._stored.setdefault(path, []).append(body["data"] if version == "2" else body)
            return (200, {"data": {"version": len(self._stored[path])}}) if version == "2" else (204, None)
        if method == "DELETE":
            self._stored[path].append(None)
            return 204, None
        versions = self._stored.get(path, [])
        if not versions:
            return _NOTHING
        if version == "1":
            return 200, {"data": versions[-1]}
        about = {
            "version": len(versions),
            "destroyed": False,
            "deletion_time": "" if versions[-1] else "2026-01-01T00:00:00Z",
        }
        return (200 if versions[-1] else 404), {"data": {"data": versions[-1], "metadata": about}}


@contextlib.contextmanager
def double(_: Path) -> Iterator[tuple[str, str]]:
    """The double, served: its address and root token."""
    vault = VaultDouble()

    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.removeprefix("/v1/").partition("?")[0]
            token = self.headers.get("X-Vault-Token", "")
            status, body = vault.answer(self.command, path, token, json.loads(data) if data else {})
            text = json.dumps(body).encode() if body is not None else b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = _take

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", vault.root
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def real(_: Path) -> Iterator[tuple[str, str]]:
    """The server that the environment names."""
    parts = urlsplit(os.environ["EMATIX_FLOW_TEST_VAULT"])
    yield f"{parts.scheme}://{parts.hostname}:{parts.port}", parts.username or ""


VAULTS: dict[str, Callable[[Path], contextlib.AbstractContextManager[tuple[str, str]]]] = {
    "double": double,
    **({"real": real} if os.environ.get("EMATIX_FLOW_TEST_VAULT") else {}),
}
