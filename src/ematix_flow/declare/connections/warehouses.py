"""Cloud warehouses: Snowflake, BigQuery and Redshift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ematix_flow.declare.connections import urls
from ematix_flow.declare.connections.base import Connection, FieldRules


def _resolved(field: str) -> Callable[[Any], str]:
    """Return the method `resolved_<field>`, which returns the field with its references expanded."""

    def method(self: Connection) -> str:
        return str(getattr(self.resolved(), field))

    method.__name__, method.__doc__ = f"resolved_{field}", f"Return {field} with its references expanded."
    return method


@dataclass(frozen=True)
class SnowflakeConnection(Connection):
    """A Snowflake account, with login by password or private key."""

    account: str = ""
    user: str = ""
    password: str = ""
    private_key: str = ""
    warehouse: str = ""
    database: str = ""
    schema: str = ""
    role: str = ""

    kind: ClassVar[str] = "snowflake"
    dialect: ClassVar[str] = "snowflake"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("account", "user"),
        examples={"account": "xy12345.eu-central-1", "user": "LOADER", "password": "${SNOWFLAKE_PASSWORD}"},
    )

    def _check(self) -> None:
        if not self.password and not self.private_key:
            self._wrong("password", "is required (or private_key)")

    resolved_account, resolved_user = _resolved("account"), _resolved("user")
    resolved_password, resolved_private_key = _resolved("password"), _resolved("private_key")


@dataclass(frozen=True)
class BigQueryConnection(Connection):
    """A dataset of Google BigQuery; without a credentials file the machine's own login is used."""

    project: str = ""
    dataset: str = ""
    credentials_path: str = ""
    location: str = ""

    kind: ClassVar[str] = "bigquery"
    dialect: ClassVar[str] = "bigquery"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("project", "dataset"),
        examples={"project": "my-project", "dataset": "analytics"},
        paths=("credentials_path",),
    )

    @property
    def label(self) -> str:
        return f"bigquery:{self.project}.{self.dataset}"

    resolved_project, resolved_dataset = _resolved("project"), _resolved("dataset")
    resolved_credentials_path = _resolved("credentials_path")


@dataclass(frozen=True)
class RedshiftConnection(Connection):
    """An Amazon Redshift cluster, with the bucket and role that it loads through."""

    host: str = ""
    port: int | str = 5439
    database: str = ""
    user: str = ""
    password: str = ""
    s3_staging_dir: str = ""
    iam_role: str = ""

    kind: ClassVar[str] = "redshift"
    dialect: ClassVar[str] = "redshift"
    default_schema: ClassVar[str] = "public"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("host", "database", "user", "password"),
        examples={
            "host": "cluster.abc.eu-central-1.redshift.amazonaws.com",
            "database": "dev",
            "user": "loader",
            "password": "${REDSHIFT_PASSWORD}",
        },
        integers=("port",),
    )

    @property
    def dsn(self) -> str:
        return self._url("redshift")

    @property
    def label(self) -> str:
        return f"redshift:{self.host}/{self.database}"

    def to_postgres_url(self) -> str:
        """Return the URL for PostgreSQL drivers, references expanded and percent-encoded."""
        return self.resolved()._url("postgresql")

    def _url(self, scheme: str) -> str:
        parts = urls.Url(
            scheme=scheme,
            host=self.host,
            port=str(self.port),
            user=self.user,
            password=self.password,
            path=self.database,
        )
        return urls.join(parts, literal=self.is_resolved)
