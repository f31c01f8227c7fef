"""A client of the AWS Glue schema registry, through boto3."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ematix_flow.declare.connections import GlueSchemaRegistryConnection
from ematix_flow.foundation.drivers import require_driver
from ematix_flow.foundation.errors import ConnectionFailed, FlowError, PermissionDenied, Unreachable
from ematix_flow.foundation.redact import mask
from ematix_flow.messages.registries.registry import GLUE_WIRE, RegisteredSchema, SchemaId, SchemaRefused, UnknownSchema

_BUSY = ("ThrottlingException", "InternalServiceException", "ServiceUnavailable", "OperationTimeoutException")
_REFUSED = (
    "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
    "IncompleteSignature", "MissingAuthenticationToken",
)  # fmt: skip
_CHECK_SECONDS, _PAUSE_SECONDS = 30.0, 0.3
_CREDENTIALS = "give credentials: the connection's keys or profile, AWS_ACCESS_KEY_ID, or a role"


class GlueRegistry:
    """A client that fetches schemas by the UUID of their version, and caches them: a version never changes."""

    wire = GLUE_WIRE

    def __init__(self, client: Any, registry_name: str) -> None:
        self._client = client
        self._name = registry_name
        self.label = f"glue:{registry_name}"
        self._lock = threading.Lock()
        self._schemas: dict[SchemaId, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str, str], SchemaId] = {}

    @classmethod
    def of(cls, connection: GlueSchemaRegistryConnection, *, endpoint: str | None = None) -> GlueRegistry:
        """Return the registry of a connection; `endpoint` is given only where it is not Amazon's."""
        boto3 = require_driver(
            "boto3", needed_by="the Glue schema registry", package="boto3", extra="glue-schema-registry"
        )
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        try:
            session = boto3.session.Session(
                profile_name=connection.aws_profile,
                aws_access_key_id=connection.aws_access_key_id,
                aws_secret_access_key=connection.aws_secret_access_key,
                region_name=connection.region,
            )
            patience = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3, "mode": "standard"})
            client = session.client("glue", endpoint_url=endpoint, config=patience)
        except BotoCoreError as error:
            raise ConnectionFailed(
                f"the Glue registry {connection.registry_name} cannot be opened: {mask(str(error))}", hint=_CREDENTIALS
            ) from None
        return cls(client, connection.registry_name)

    @classmethod
    def shared(cls, connection: GlueSchemaRegistryConnection) -> GlueRegistry:
        """Return the registry that is open for this connection, else a new one."""
        known, opened = OPENED.get(connection.registry_name, (None, None))
        return opened if opened is not None and known == connection else cls.of(connection.resolved())

    def __repr__(self) -> str:
        return f"GlueRegistry({self.label!r})"

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return the schema of this version; raise UnknownSchema where there is none."""
        with self._lock:
            kept = self._schemas.get(schema_id)
        if kept is not None:
            return kept
        version = self.version(SchemaVersionId=str(schema_id))
        if version is None:
            raise UnknownSchema(
                f"the registry {self.label} knows no schema version {schema_id}",
                hint="is this the registry that the messages' producer used?",
            )
        schema = _registered_schema(version)
        with self._lock:
            self._schemas[schema_id] = schema
        return schema

    def latest(self, subject: str) -> tuple[SchemaId, RegisteredSchema] | None:
        """Return the newest version of the schema with this name, and its UUID; None where there is none."""
        version = self.version(SchemaId=self.place(subject), SchemaVersionNumber={"LatestVersion": True})
        return None if version is None else (str(version["SchemaVersionId"]), _registered_schema(version))

    def register(self, subject: str, text: str, kind: str) -> SchemaId:
        """Return the UUID of this schema's version; registering it again changes nothing."""
        with self._lock:
            kept = self._ids.get((subject, text, kind))
        if kept is not None:
            return kept
        version = self.added(subject, text, kind)
        with self._lock:
            self._ids[(subject, text, kind)] = version
        return version

    def place(self, subject: str) -> dict[str, str]:
        """Return Glue's identifier of the schema with this name."""
        return {"SchemaName": subject, "RegistryName": self._name}

    def version(self, **which: Any) -> dict[str, Any] | None:
        """Return Glue's description of one version; None where there is none."""
        with self._translated_errors():
            try:
                return dict(self._client.get_schema_version(**which))
            except self._client.exceptions.EntityNotFoundException:
                return None

    def added(self, subject: str, text: str, kind: str, **data: str) -> str:
        """Return the UUID of the version with this text, once Glue accepts it; create version and schema as needed."""
        with self._translated_errors(subject):
            try:
                answer = self._client.register_schema_version(SchemaId=self.place(subject), SchemaDefinition=text)
            except self._client.exceptions.EntityNotFoundException:
                wanted = {"Compatibility": "BACKWARD", "DataFormat": kind, "SchemaDefinition": text, **data}
                registry = {"RegistryName": self._name}
                answer = self._client.create_schema(RegistryId=registry, SchemaName=subject, **wanted)
        version = str(answer["SchemaVersionId"])
        status = answer.get("Status") or answer.get("SchemaVersionStatus")
        deadline = time.monotonic() + _CHECK_SECONDS
        while status == "PENDING" and time.monotonic() < deadline:  # Glue checks the compatibility with former versions
            time.sleep(_PAUSE_SECONDS)
            status = (self.version(SchemaVersionId=version) or {}).get("Status")
        if status not in (None, "AVAILABLE"):
            raise SchemaRefused(
                f"the registry {self.label} does not take the schema of {subject}: its state is {status}",
                hint="keep the columns compatible with its newest version, or change its compatibility",
            )
        return version

    @contextmanager
    def _translated_errors(self, subject: str | None = None) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

        try:
            yield
        except ClientError as error:
            raise self._to_error(error, subject) from None
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise PermissionDenied(f"the registry {self.label}: {mask(str(error))}", hint=_CREDENTIALS) from None
        except BotoCoreError as error:
            raise Unreachable(
                f"the registry {self.label} cannot be reached: {mask(str(error))}",
                hint="check the region and the network",
            ) from None

    def _to_error(self, error: Any, subject: str | None) -> FlowError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        message = mask(str(error.response.get("Error", {}).get("Message", "")))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        what = f"the registry {self.label} answered {code}: {message}"
        if code in _BUSY or status >= 500:
            return Unreachable(what, hint="it is tried again")
        if code in _REFUSED or status in (401, 403):
            return PermissionDenied(what, hint=_CREDENTIALS)
        if subject is not None and code == "InvalidInputException":
            return SchemaRefused(f"{what} (schema {subject})", hint="look at the names and types of the columns")
        return ConnectionFailed(what, hint="check registry_name and region of the connection")


def _registered_schema(answer: dict[str, Any]) -> RegisteredSchema:
    return RegisteredSchema(
        str(answer["DataFormat"]), str(answer["SchemaDefinition"]), (), int(answer.get("VersionNumber", 0))
    )


OPENED: dict[str, tuple[GlueSchemaRegistryConnection, GlueRegistry]] = {}
"""Registries that all streams of this process share, by registry name."""
