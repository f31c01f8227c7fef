"""Connections from one URL: the kind of each scheme, and the fields for the parts of the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ematix_flow.declare.connections import urls
from ematix_flow.declare.connections.base import Connection
from ematix_flow.declare.connections.brokers import KafkaConnection, RabbitMQConnection
from ematix_flow.declare.connections.databases import (
    DuckDBConnection,
    MySQLConnection,
    PostgresConnection,
    SQLiteConnection,
)
from ematix_flow.declare.connections.lakes import (
    DeltaLocalConnection,
    DeltaS3Connection,
    ObjectStoreLocalConnection,
    ObjectStoreS3Connection,
    format_from_path,
)
from ematix_flow.declare.connections.warehouses import BigQueryConnection, RedshiftConnection, SnowflakeConnection
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import did_you_mean, nearest_name


@dataclass(frozen=True, repr=False)
class ParsedUrl:
    """A parsed URL: a kind and values for its fields."""

    kind: type[Connection]
    fields: Mapping[str, object]


def parse_url(url: str) -> ParsedUrl:
    """Return the kind of connection of the URL, and its fields."""
    scheme = urls.scheme_of(url)
    plain = scheme if scheme in _READERS else scheme.partition("+")[0]
    if plain not in _READERS:
        raise _unknown_scheme(scheme if "://" in url else "")
    try:
        return _READERS[plain](url)
    except urls.UrlError as error:
        raise ConfigError(f"the {scheme} URL {error}", hint="check the URL; " + _SHAPE) from None


def _server(kind: type[Connection]) -> Callable[[str], ParsedUrl]:
    return lambda url: ParsedUrl(kind, {"url": url})


def _file_database(kind: type[Connection]) -> Callable[[str], ParsedUrl]:
    def reader(url: str) -> ParsedUrl:
        rest, params = urls.rest_of(url)
        path = rest[1:] if rest.startswith("/") else rest
        return _with_params(kind, {"path": path or ":memory:"}, params)

    return reader


def _delta(url: str) -> ParsedUrl:
    rest, params = urls.rest_of(url)
    return _with_params(DeltaLocalConnection, {"path": _local(rest)}, params)


def _files(url: str) -> ParsedUrl:
    rest, params = urls.rest_of(url)
    if params.get("format") == "delta":
        return _with_params(DeltaLocalConnection, {"path": _local(rest)}, _without_parameter(params, "format"))
    return _with_params(ObjectStoreLocalConnection, {"path": _local(rest), "format": _format(rest, params)}, params)


def _bucket(url: str) -> ParsedUrl:
    parts = urls.split(url)
    fields = {
        "bucket": parts.host,
        "prefix": parts.path,
        "endpoint": "https://s3.amazonaws.com",
        "region": "${AWS_REGION}",
        "access_key_id": parts.user or "${AWS_ACCESS_KEY_ID}",
        "secret_access_key": parts.password or "${AWS_SECRET_ACCESS_KEY}",
    }
    if parts.scheme == "delta+s3" or parts.params.get("format") == "delta":
        return _with_params(DeltaS3Connection, fields, _without_parameter(parts.params, "format"))
    fields["format"] = _format(parts.path, parts.params)
    return _with_params(ObjectStoreS3Connection, fields, parts.params)


def _redshift(url: str) -> ParsedUrl:
    parts = urls.split(url)
    fields = {"host": parts.host, "database": parts.path, "user": parts.user, "password": parts.password}
    if parts.port:
        fields["port"] = parts.port
    return _with_params(RedshiftConnection, fields, parts.params)


def _snowflake(url: str) -> ParsedUrl:
    parts = urls.split(url)
    database, _, schema = parts.path.partition("/")
    fields = {
        "account": parts.host,
        "user": parts.user,
        "password": parts.password,
        "database": database,
        "schema": schema,
    }
    return _with_params(SnowflakeConnection, fields, parts.params)


def _bigquery(url: str) -> ParsedUrl:
    parts = urls.split(url)
    return _with_params(BigQueryConnection, {"project": parts.host, "dataset": parts.path}, parts.params)


def _kafka(url: str) -> ParsedUrl:
    parts = urls.split(url)
    fields: dict[str, object] = {"bootstrap_servers": f"{parts.host}:{parts.port}" if parts.port else parts.host}
    if parts.user:
        fields |= {"sasl_plain_username": parts.user, "sasl_plain_password": parts.password}
    return _with_params(KafkaConnection, fields, parts.params)


def _rabbitmq(url: str) -> ParsedUrl:
    return ParsedUrl(RabbitMQConnection, {"amqp_url": url})


_READERS: dict[str, Callable[[str], ParsedUrl]] = {
    "postgres": _server(PostgresConnection),
    "postgresql": _server(PostgresConnection),
    "mysql": _server(MySQLConnection),
    "mariadb": _server(MySQLConnection),
    "sqlite": _file_database(SQLiteConnection),
    "duckdb": _file_database(DuckDBConnection),
    "delta": _delta,
    "delta+file": _delta,
    "file": _files,
    "s3": _bucket,
    "s3a": _bucket,
    "delta+s3": _bucket,
    "redshift": _redshift,
    "snowflake": _snowflake,
    "bigquery": _bigquery,
    "kafka": _kafka,
    "amqp": _rabbitmq,
    "amqps": _rabbitmq,
}
SCHEMES = tuple(_READERS)
_SHAPE = "the shape is scheme://user:password@host:port/name?option=value"


def _with_params(kind: type[Connection], fields: Mapping[str, object], params: Mapping[str, str]) -> ParsedUrl:
    for name in params:
        if name not in kind.field_names():
            raise ConfigError(
                f"a {kind.kind} URL has no parameter {name!r}", hint=did_you_mean(name, kind.field_names())
            )
    return ParsedUrl(kind, {**fields, **params})


def _without_parameter(params: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in params.items() if key != name}


def _format(path: str, params: Mapping[str, str]) -> str:
    file_format = params.get("format") or format_from_path(path)
    if not file_format:
        raise ConfigError(
            "the URL of a folder of files does not say their format",
            hint="add ?format=parquet (or csv, orc, json_lines, delta)",
        )
    return file_format


def _local(rest: str) -> str:
    return rest.removeprefix("localhost") if rest.startswith("localhost/") else rest


def _unknown_scheme(scheme: str) -> ConfigError:
    known = f"known schemes: {', '.join(SCHEMES)}"
    if not scheme:
        return ConfigError("the text is not a URL: it has no scheme://", hint=f"{_SHAPE}; {known}")
    near = nearest_name(scheme, SCHEMES)
    return ConfigError(
        f"unknown URL scheme {scheme!r}: no connection kind has it",
        hint=(f"did you mean {near!r}? " if near else "") + known,
    )
