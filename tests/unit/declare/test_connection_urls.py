"""Connections from URLs and from the entries of configuration files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow import connections as c
from ematix_flow.declare.connections import SCHEMES, from_fields, urls
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, MissingSecret
from ematix_flow.foundation.location import Location


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    redact.forget_secrets()
    yield
    redact.forget_secrets()


S3 = {
    "endpoint": "https://s3.amazonaws.com",
    "region": "${AWS_REGION}",
    "access_key_id": "${AWS_ACCESS_KEY_ID}",
    "secret_access_key": "${AWS_SECRET_ACCESS_KEY}",
}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgres://u:p@h:5432/db", c.PostgresConnection("x", url="postgres://u:p@h:5432/db")),
        ("postgresql+psycopg://h/db", c.PostgresConnection("x", url="postgresql+psycopg://h/db")),
        ("POSTGRES://h/db", c.PostgresConnection("x", url="POSTGRES://h/db")),
        ("mysql://u@h/db", c.MySQLConnection("x", url="mysql://u@h/db")),
        ("mariadb+pymysql://u@h/db", c.MySQLConnection("x", url="mariadb+pymysql://u@h/db")),
        ("sqlite:///data/shop.db", c.SQLiteConnection("x", path="data/shop.db")),
        ("sqlite:////data/shop.db", c.SQLiteConnection("x", path="/data/shop.db")),
        ("sqlite:///:memory:", c.SQLiteConnection("x", path=":memory:")),
        ("sqlite://", c.SQLiteConnection("x", path=":memory:")),
        ("sqlite:///${DIR}/a?b.db".replace("?", "%3F"), c.SQLiteConnection("x", path="${DIR}/a?b.db")),
        ("duckdb:///shop.duckdb", c.DuckDBConnection("x", path="shop.duckdb")),
        ("duckdb:////data/shop.duckdb", c.DuckDBConnection("x", path="/data/shop.duckdb")),
        ("duckdb:///:memory:", c.DuckDBConnection("x", path=":memory:")),
        ("delta:///data/lake", c.DeltaLocalConnection("x", path="/data/lake")),
        ("delta://data/lake", c.DeltaLocalConnection("x", path="data/lake")),
        ("delta+file:///data/lake", c.DeltaLocalConnection("x", path="/data/lake")),
        ("file:///data/in?format=csv", c.ObjectStoreLocalConnection("x", path="/data/in", format="csv")),
        ("file://data/in?format=orc", c.ObjectStoreLocalConnection("x", path="data/in", format="orc")),
        ("file://localhost/data/a.jsonl", c.ObjectStoreLocalConnection("x", path="/data/a.jsonl", format="json_lines")),
        ("file:///data/lake?format=delta", c.DeltaLocalConnection("x", path="/data/lake")),
        (
            "s3://bucket/raw/events?format=parquet&region=eu-central-1&endpoint=http://localhost:9000",
            c.ObjectStoreS3Connection(
                "x",
                bucket="bucket",
                prefix="raw/events",
                format="parquet",
                **{**S3, "region": "eu-central-1", "endpoint": "http://localhost:9000"},
            ),
        ),
        (
            "s3a://AKID:se%2Fcret@bucket?format=csv",
            c.ObjectStoreS3Connection(
                "x", bucket="bucket", format="csv", **{**S3, "access_key_id": "AKID", "secret_access_key": "se/cret"}
            ),
        ),
        ("s3://bucket/lake?format=delta", c.DeltaS3Connection("x", bucket="bucket", prefix="lake", **S3)),
        ("delta+s3://bucket/lake", c.DeltaS3Connection("x", bucket="bucket", prefix="lake", **S3)),
        (
            "redshift://u:p%40@h:5440/dev?iam_role=arn:aws:iam::1:role/r",
            c.RedshiftConnection(
                "x", host="h", port=5440, database="dev", user="u", password="p@", iam_role="arn:aws:iam::1:role/r"
            ),
        ),
        (
            "snowflake://u:p@acc.eu/db/public?warehouse=w&role=r",
            c.SnowflakeConnection(
                "x",
                account="acc.eu",
                user="u",
                password="p",
                database="db",
                schema="public",
                warehouse="w",
                role="r",
            ),
        ),
        ("bigquery://proj/data?location=EU", c.BigQueryConnection("x", project="proj", dataset="data", location="EU")),
        ("kafka://a:9092", c.KafkaConnection("x", bootstrap_servers="a:9092")),
        (
            "kafka://u:p@a:9092,b:9093?group_id=g",
            c.KafkaConnection(
                "x",
                bootstrap_servers="a:9092,b:9093",
                group_id="g",
                sasl_plain_username="u",
                sasl_plain_password="p",
            ),
        ),
        ("amqp://u:p@mq/%2f", c.RabbitMQConnection("x", amqp_url="amqp://u:p@mq/%2f")),
        ("amqps://mq", c.RabbitMQConnection("x", amqp_url="amqps://mq")),
    ],
)
def test_each_scheme_means_its_kind(url: str, expected: c.Connection) -> None:
    assert c.from_url("x", url) == expected


@pytest.mark.parametrize(
    ("url", "said", "hint"),
    [
        ("postgers://u:hunter22@h/db", "URL scheme 'postgers'", "did you mean 'postgres'"),
        ("ftp://u:hunter22@h/db", "URL scheme 'ftp'", ", ".join(SCHEMES)),
        ("u:hunter22@h/db", "it has no scheme://", "postgres"),
        ("", "it has no scheme://", "postgres"),
        ("hunter22", "it has no scheme://", "postgres"),
        ("s3://u:hunter22@bucket/raw", "does not say their format", "?format=parquet"),
        ("file:///data", "does not say their format", "?format=parquet"),
        ("file:///data?format=xlsx", "format is not one that exists", "json_lines"),
        ("kafka://u:hunter22@a:9092?grup_id=x", "no parameter 'grup_id'", "did you mean 'group_id'"),
        ("redshift://u:hunter22@h:port/db", "no port number", "user:password@host"),
        ("redshift://h/db", "user is required", "user"),
        ("postgres://u:hunter22/x@h/db", "must be percent-encoded", "postgres://user"),
    ],
)
def test_a_url_that_cannot_be_read_is_one_clear_error(url: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        c.from_url("x", url)
    assert said in caught.value.what
    assert hint in str(caught.value.hint)
    assert "'x'" in caught.value.what
    assert "hunter22" not in str(caught.value)


_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(user=_text, password=_text, database=_text, param=_text)
def test_any_text_survives_the_way_into_a_url_and_back(user: str, password: str, database: str, param: str) -> None:
    parts = urls.Url(
        scheme="postgresql", host="h", port="1", user=user, password=password, path=database, params={"p": param}
    )
    assert urls.split(urls.join(parts, literal=True)) == parts


_plain = _text.filter(lambda text: "${" not in text)


@given(user=_plain, password=_plain, database=_plain)
def test_the_client_library_of_postgres_reads_the_built_url_as_it_was_meant(
    user: str, password: str, database: str
) -> None:
    from psycopg.conninfo import conninfo_to_dict

    made = c.PostgresConnection(
        "x", host="::1", port=5433, database=database, user=user, password=password, application_name="a b&c+d"
    )
    assert conninfo_to_dict(made.resolved().dsn) == {
        "host": "::1",
        "port": "5433",
        "dbname": database,
        "user": user,
        "password": password,
        "application_name": "a b&c+d",
    }


@given(path=_plain)
def test_file_databases_and_lakes_survive_the_way_into_a_url_and_back(path: str) -> None:
    for made in (
        c.SQLiteConnection("x", path=f"d/{path}"),
        c.DuckDBConnection("x", path=f"/{path}"),
        c.DeltaLocalConnection("x", path=f"/{path}"),
        c.ObjectStoreLocalConnection("x", path=f"d/{path}", format="csv"),
    ):
        assert c.from_url("x", made.dsn) == made


def test_redshift_survives_the_way_into_a_url_and_back() -> None:
    made = c.RedshiftConnection("x", host="h", database="d", user="a@b", password="p/?")
    assert c.from_url("x", made.dsn) == made


def test_the_parts_of_a_url_never_show_their_password() -> None:
    parts = urls.split("postgres://ana:hunter22@db/shop")
    assert parts.password == "hunter22"
    assert "hunter22" not in repr(parts)


# Entries of configuration files


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"url": "postgres://h/db"}, c.PostgresConnection("x", url="postgres://h/db")),
        ({"dsn": "postgres://h/db"}, c.PostgresConnection("x", url="postgres://h/db")),
        ({"url": "postgres://h/db", "dsn": "postgres://h/db"}, c.PostgresConnection("x", url="postgres://h/db")),
        (
            {"url": "postgres://h/db", "sslmode": "require"},
            c.PostgresConnection("x", url="postgres://h/db", sslmode="require"),
        ),
        ({"kind": "postgres", "url": "${NOT_SET}"}, c.PostgresConnection("x", url="${NOT_SET}")),
        ({"kind": "postgres", "host": "h", "port": 5433}, c.PostgresConnection("x", host="h", port=5433)),
        ({"kind": "sqlite", "path": "a.db"}, c.SQLiteConnection("x", path="a.db")),
        ({"kind": "sqlite", "url": "sqlite:///a.db"}, c.SQLiteConnection("x", path="a.db")),
        ({"kind": "rabbitmq", "url": "amqp://mq"}, c.RabbitMQConnection("x", amqp_url="amqp://mq")),
        ({"kind": "schema_registry", "url": "http://sr"}, c.SchemaRegistryConnection("x", url="http://sr")),
        (
            {"kind": "kafka", "bootstrap_servers": "${KAFKA_BOOTSTRAP}", "group_id": "g"},
            c.KafkaConnection("x", bootstrap_servers="${KAFKA_BOOTSTRAP}", group_id="g"),
        ),
        ({"kind": "pubsub", "project_id": "p", "anonymous_auth": True}, c.PubSubConnection("x", "p", None, True)),
    ],
)
def test_an_entry_is_a_url_or_a_kind_with_fields_or_both(entry: dict[str, Any], expected: c.Connection) -> None:
    assert from_fields("x", entry) == expected


@pytest.mark.parametrize(
    ("entry", "said", "hint"),
    [
        ({}, "neither url nor kind", "add url"),
        ({"path": "a"}, "neither url nor kind", "add url"),
        ({"kind": "postgress"}, "no connection kind 'postgress'", "did you mean 'postgres'"),
        ({"kind": 5}, "no connection kind 5", "valid: bigquery"),
        ({"kind": "sqlite", "pth": "a"}, "no field 'pth'", "did you mean 'path'"),
        ({"url": "postgres://u:hunter22@h/db", "passwrd": "hunter22"}, "no field 'passwrd'", "did you mean 'password'"),
        ({"kind": "sqlite"}, "path is required", "path"),
        ({"kind": "sqlite", "url": "duckdb:///a"}, "the URL means a duckdb connection", "remove kind"),
        ({"kind": "postgres", "url": "mysql://u:hunter22@h/d"}, "does not begin with postgres://", "postgres://user"),
        ({"url": "postgres://a", "dsn": "postgres://b"}, "url and dsn say different things", "keep one"),
        ({"url": 5}, "url must be text, not int", "quotes"),
        ({"kind": "sqlite", "path": 5}, "path must be text, not int", "path"),
    ],
)
def test_an_entry_that_cannot_be_right_is_one_clear_error(entry: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_fields("x", entry, where=Location("conf.toml", 7))
    assert said in caught.value.what
    assert hint in str(caught.value.hint)
    assert "'x'" in caught.value.what
    assert "conf.toml:7" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_url_behind_a_reference_tells_its_kind_and_keeps_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_URL", "postgres://ana:geheim-22@db/shop")
    assert from_fields("x", {"url": "${SOME_URL}"}) == c.PostgresConnection("x", url="${SOME_URL}")
    monkeypatch.setenv("SOME_URL", "duckdb:///shop.duckdb")
    assert from_fields("x", {"url": "${SOME_URL}"}) == c.DuckDBConnection("x", path="shop.duckdb")
    monkeypatch.delenv("SOME_URL")
    with pytest.raises(MissingSecret, match=r"connection 'x'.*SOME_URL"):
        from_fields("x", {"url": "${SOME_URL}"})


def test_a_connection_from_a_file_remembers_its_line() -> None:
    made = from_fields("x", {"kind": "sqlite", "path": "a"}, where=Location("conf.toml", 7))
    assert str(made.declared_at) == "conf.toml:7"
