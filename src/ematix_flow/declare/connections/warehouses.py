"""Cloud warehouses: Snowflake, BigQuery and Redshift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ematix_flow.declare.connections import urls
from ematix_flow.declare.connections.base import Connection, FieldRules


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
    rules: ClassVar[FieldRules] = FieldRules(
        required=("account", "user"),
        examples={"account": "xy12345.eu-central-1", "user": "LOADER", "password": "${SNOWFLAKE_PASSWORD}"},
    )

    def _check(self) -> None:
        if not self.password and not self.private_key:
            self._wrong("password", "is required (or private_key)")

    def resolved_account(self) -> str:
        """Return the account with its references expanded."""
        return self.resolved().account

    def resolved_user(self) -> str:
        """Return the user with its references expanded."""
        return self.resolved().user

    def resolved_password(self) -> str:
        """Return the password with its references expanded."""
        return self.resolved().password

    def resolved_private_key(self) -> str:
        """Return the private key with its references expanded."""
        return self.resolved().private_key


@dataclass(frozen=True)
class BigQueryConnection(Connection):
    """A dataset of Google BigQuery; without a credentials file the machine's own login is used."""

    project: str = ""
    dataset: str = ""
    credentials_path: str = ""
    location: str = ""

    kind: ClassVar[str] = "bigquery"
    rules: ClassVar[FieldRules] = FieldRules(
        required=("project", "dataset"),
        examples={"project": "my-project", "dataset": "analytics"},
        paths=("credentials_path",),
    )

    @property
    def label(self) -> str:
        return f"bigquery:{self.project}.{self.dataset}"

    def resolved_project(self) -> str:
        """Return the project with its references expanded."""
        return self.resolved().project

    def resolved_dataset(self) -> str:
        """Return the dataset with its references expanded."""
        return self.resolved().dataset

    def resolved_credentials_path(self) -> str:
        """Return the path of the credentials file with its references expanded."""
        return self.resolved().credentials_path


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
