"""Schema registries, which brokers refer to by name or by object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ematix_flow.declare.connections.base import Connection, FieldRules
from ematix_flow.foundation.redact import redact


@dataclass(frozen=True)
class SchemaRegistryConnection(Connection):
    """A registry with Confluent's API."""

    url: str = ""
    basic_auth_user: str | None = None
    basic_auth_password: str | None = None
    tls_ca_path: str | None = None
    tls_cert_path: str | None = None
    tls_key_path: str | None = None

    kind: ClassVar[str] = "schema_registry"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("url",),
        examples={"url": "http://localhost:8081"},
        urls={"url": ("http", "https")},
        paths=("tls_ca_path", "tls_cert_path", "tls_key_path"),
    )

    @property
    def dsn(self) -> str:
        return self.url

    @property
    def label(self) -> str:
        return str(redact("url", self.url))

    def _check(self) -> None:
        self._together("basic_auth_user", "basic_auth_password")
        self._together("tls_cert_path", "tls_key_path")


@dataclass(frozen=True)
class GlueSchemaRegistryConnection(Connection):
    """The schema registry of AWS Glue."""

    registry_name: str = ""
    region: str = ""
    aws_profile: str | None = None
    aws_access_key_id: str | None = None
    aws_secret_access_key: str | None = None

    kind: ClassVar[str] = "glue_schema_registry"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("registry_name", "region"), examples={"registry_name": "events", "region": "us-east-1"}
    )

    def _check(self) -> None:
        has_keys = self._together("aws_access_key_id", "aws_secret_access_key")
        if has_keys and self.aws_profile:
            self._wrong("aws_profile", "excludes the access keys", hint="keep either the profile or the two keys")
