"""A client of Confluent's schema registry, and of servers with the same protocol (Apicurio's ccompat address)."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ematix_flow.foundation.errors import ConfigError, ConnectionFailed, FlowError, PermissionDenied, Unreachable
from ematix_flow.foundation.packages import __version__
from ematix_flow.foundation.redact import mask, remember_secret
from ematix_flow.messages.registries.registry import (
    AVRO,
    CONFLUENT_WIRE,
    CONTENT_ID,
    GLOBAL_ID,
    RegisteredSchema,
    SchemaId,
    SchemaReference,
    SchemaRefused,
    UnknownSchema,
)

_TYPE = "application/vnd.schemaregistry.v1+json"
_SECONDS = 10.0
_PAUSE_SECONDS = 0.5
_APICURIO_IDS = {GLOBAL_ID: "globalIds", CONTENT_ID: "contentIds"}
_SHOWN = 300
_DEEPEST = 20
"""The most levels of schema references; deeper ones count as circular."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect, which would send the login to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Refusal(Exception):
    """An error answer of the registry, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ConfluentRegistry:
    """A client that fetches schemas by number, and caches them: a number never gets another schema."""

    wire = CONFLUENT_WIRE

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("the schema registry's url is none", hint="write http://host:8081 or https://host")
        host = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._root = urlunsplit((parts.scheme, host, parts.path.partition("/apis/")[0].rstrip("/"), "", ""))
        self.label = self._base
        self._login = _login(user or unquote(parts.username or ""), password or unquote(parts.password or ""))
        context = _context(ca, certificate, key) if parts.scheme == "https" else None
        handlers = [_NoRedirect(), *([urllib.request.HTTPSHandler(context=context)] if context is not None else [])]
        self._opener = urllib.request.build_opener(*handlers)
        self._lock = threading.Lock()
        self._schemas: dict[SchemaId, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str], SchemaId] = {}

    def __repr__(self) -> str:
        return f"ConfluentRegistry({self.label!r})"

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema with this number; raise UnknownSchema where there is none."""
        with self._lock:
            kept = self._schemas.get(schema_id)
        if kept is not None:
            return kept
        try:
            schema = self._fetched(schema_id)
        except _Refusal as refusal:
            if refusal.status == 404:
                raise UnknownSchema(
                    f"the schema registry {self.label} knows no schema {schema_id}",
                    hint="is this the registry that the messages' producer used? Does it write the id before the payload?",
                ) from None
            raise self._to_error(refusal) from None
        with self._lock:
            self._schemas[schema_id] = schema
        return schema

    def _fetched(self, schema_id: SchemaId) -> RegisteredSchema:
        """Fetch a schema by the id of Confluent's protocol, or by one of Apicurio's own ids from Apicurio's own API."""
        for name, path in _APICURIO_IDS.items():
            if str(schema_id).startswith(name):
                number = int(str(schema_id).removeprefix(name))
                answer = self._of_apicurio(f"/{path}/{number}")
                return RegisteredSchema(AVRO, json.dumps(answer), (), number)
        return self._schema_from(self._request("GET", f"/schemas/ids/{schema_id}"), order=int(schema_id))

    def _of_apicurio(self, path: str) -> dict[str, Any]:
        """Return the schema text with one of Apicurio's ids, references resolved; try API version 3, then 2."""
        try:
            return self._request("GET", f"/apis/registry/v3/ids{path}?references=DEREFERENCE", base=self._root)
        except _Refusal as refusal:
            if refusal.status != 404:
                raise
        return self._request("GET", f"/apis/registry/v2/ids{path}?dereference=true", base=self._root)

    def latest(self, subject: str) -> tuple[SchemaId, RegisteredSchema] | None:
        """Return the newest schema of a subject and its number; None where there is none."""
        try:
            answer = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        except _Refusal as refusal:
            if refusal.status == 404:
                return None
            raise self._to_error(refusal) from None
        number = int(answer["id"])
        return number, self._schema_from(answer, order=number)

    def register(self, subject: str, text: str, kind: str) -> SchemaId:
        """Return the number of this schema; registering it again changes nothing."""
        with self._lock:
            kept = self._ids.get((subject, text, kind))
        if kept is not None:
            return kept
        body = {"schema": text, **({} if kind == AVRO else {"schemaType": kind})}
        try:
            number = int(self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])
        except _Refusal as refusal:
            if refusal.status in (409, 422):
                raise SchemaRefused(
                    f"the schema registry {self.label} does not take the schema of {subject}: {refusal}",
                    hint="keep the columns compatible with the subject's newest schema, or change its compatibility",
                ) from None
            raise self._to_error(refusal) from None
        with self._lock:
            self._ids[(subject, text, kind)] = number
        return number

    def _schema_from(self, answer: dict[str, Any], *, order: int, depth: int = 0) -> RegisteredSchema:
        if depth > _DEEPEST:
            raise ConnectionFailed(
                f"schemas of {self.label} refer to each other in a circle", hint="look at the subject"
            )
        references = tuple(
            SchemaReference(name=str(one["name"]), schema=self._referred(one, depth=depth + 1))
            for one in answer.get("references") or ()
        )
        return RegisteredSchema(str(answer.get("schemaType") or AVRO), str(answer["schema"]), references, order)

    def _referred(self, reference: dict[str, Any], *, depth: int) -> RegisteredSchema:
        subject = quote(str(reference["subject"]), safe="")
        try:
            answer = self._request("GET", f"/subjects/{subject}/versions/{int(reference['version'])}")
        except _Refusal as refusal:
            raise self._to_error(refusal) from None
        return self._schema_from(answer, order=int(answer.get("id", 0)), depth=depth)

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, base: str | None = None
    ) -> dict[str, Any]:
        """Return the answer to one request; retry once when the registry is unreachable."""
        address = (self._base if base is None else base) + path
        try:
            return self._request_once(method, address, body)
        except Unreachable:
            time.sleep(_PAUSE_SECONDS)
        return self._request_once(method, address, body)

    def _request_once(self, method: str, address: str, body: dict[str, Any] | None) -> dict[str, Any]:
        headers = {
            "Accept": f"{_TYPE}, application/json, */*",
            "User-Agent": f"ematix-flow/{__version__}",
            **self._login,
        }
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = _TYPE
        request = urllib.request.Request(address, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                answer_data = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            message = _error_text(error.read(4096))
            if error.code >= 500 or error.code == 429:
                raise self._unreachable(f"answered {error.code}: {message}") from None
            raise _Refusal(error.code, message or str(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(str(getattr(error, "reason", None) or error)) from None
        except ValueError:
            raise self._not_a_registry() from None
        if not isinstance(answer_data, dict):
            raise self._not_a_registry()
        return answer_data

    def _unreachable(self, reason: str) -> Unreachable:
        return Unreachable(
            mask(f"the schema registry {self.label} cannot be reached: {reason[:_SHOWN]}"),
            hint="is it running, and is the address right? What was read stays where it is until it answers",
        )

    def _not_a_registry(self) -> ConnectionFailed:
        return ConnectionFailed(
            f"{self.label} does not answer as a schema registry does",
            hint="check the path: Apicurio's is http://host:8080/apis/ccompat/v7",
        )

    def _to_error(self, refusal: _Refusal) -> FlowError:
        what = mask(f"the schema registry {self.label} answered {refusal.status}: {refusal}")
        if refusal.status in (401, 403):
            return PermissionDenied(what, hint="check basic_auth_user and basic_auth_password of the connection")
        return ConnectionFailed(what, hint="check the address of the schema registry")


def _login(user: str, password: str) -> dict[str, str]:
    if not user:
        return {}
    word = base64.b64encode(f"{user}:{password}".encode()).decode()
    remember_secret(password)
    remember_secret(word)
    return {"Authorization": f"Basic {word}"}


def _context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificates of the schema registry cannot be used: {type(error).__name__}",
            hint="check tls_ca_path, tls_cert_path and tls_key_path: PEM files, the key without a passphrase",
        ) from None
    return context


def _error_text(body: bytes) -> str:
    """Return the registry's error text; answers are JSON or plain text."""
    text = body.decode(errors="replace").strip()
    try:
        data = json.loads(text)
    except ValueError:
        return mask(text[:_SHOWN])
    return mask(str(data.get("message", text) if isinstance(data, dict) else text)[:_SHOWN])
