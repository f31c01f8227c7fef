"""Every kind of connection: its fields, its checks, its silence about secrets, its references at use time."""

from __future__ import annotations

import pickle
import pprint
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ematix_flow import connections as c
from ematix_flow import warehouses
from ematix_flow.declare.connections import KINDS
from ematix_flow.foundation import redact
from ematix_flow.foundation.errors import ConfigError, DeclarationError, MissingSecret


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    redact.forget_secrets()
    yield
    redact.forget_secrets()


def _samples(secret: str) -> dict[str, list[dict[str, Any]]]:
    """Valid fields for every kind, with the secret in every place where one can stand."""
    in_url = quote(secret, safe="")
    s3 = {
        "endpoint": f"https://ana:{in_url}@s3.example.org",
        "bucket": "b",
        "region": "eu-central-1",
        "access_key_id": secret,
        "secret_access_key": secret,
    }
    server = [
        {"host": "db", "database": "shop", "user": "ana", "password": secret},
        {"url": "${WHOLE_URL}", "password": secret},
    ]
    registry = c.SchemaRegistryConnection("sr", url="http://sr", basic_auth_user="ana", basic_auth_password=secret)
    return {
        "postgres": [{"url": f"postgres://ana:{in_url}@db/shop?sslpassword={in_url}"}, *server],
        "mysql": [{"url": f"mysql://ana:{in_url}@db/shop"}, *server],
        "sqlite": [{"path": "shop.db"}],
        "duckdb": [{"path": "shop.duckdb"}],
        "delta_local": [{"path": "lake"}],
        "delta_s3": [s3],
        "object_store_local": [{"path": "in", "format": "csv"}],
        "object_store_s3": [{**s3, "format": "orc"}],
        "kafka": [
            {"bootstrap_servers": "k:9092", "sasl_plain_username": "ana", "sasl_plain_password": secret},
            {
                "bootstrap_servers": "k:9092",
                "sasl_scram_username": "ana",
                "sasl_scram_password": secret,
                "sasl_scram_mechanism": "sha-512",
                "schema_registry": registry,
            },
            {"bootstrap_servers": "k:9092", "schema_registry_url": f"http://ana:{in_url}@sr:8081"},
        ],
        "rabbitmq": [{"amqp_url": f"amqp://ana:{in_url}@mq/%2f"}],
        "pubsub": [{"project_id": "p"}],
        "kinesis": [{"stream_name": "s", "access_key_id": secret, "secret_access_key": secret}],
        "schema_registry": [
            {"url": "http://sr", "basic_auth_user": "ana", "basic_auth_password": secret},
            {"url": f"http://ana:{in_url}@sr"},
        ],
        "glue_schema_registry": [
            {"registry_name": "r", "region": "eu", "aws_access_key_id": secret, "aws_secret_access_key": secret}
        ],
        "snowflake": [{"account": "a", "user": "ana", "password": secret, "private_key": secret}],
        "bigquery": [{"project": "p", "dataset": "d"}],
        "redshift": [{"host": "h", "database": "d", "user": "ana", "password": secret}],
    }


def _every_sample(secret: str) -> Iterator[c.Connection]:
    for kind, samples in _samples(secret).items():
        for fields in samples:
            yield KINDS[kind](name="conn", **fields)


def test_there_is_a_class_for_each_of_the_seventeen_kinds() -> None:
    assert set(_samples("x")) == set(KINDS)
    assert len(KINDS) == 17
    assert {cls.__name__ for cls in KINDS.values()} <= set(c.__all__)
    assert set(warehouses.__all__) == {"SnowflakeConnection", "BigQueryConnection", "RedshiftConnection"}


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=3, max_size=24).filter(str.strip))
def test_no_planted_password_is_ever_shown(text: str) -> None:
    secret = f"§{text}¤"
    redact.forget_secrets()
    for connection in _every_sample(secret):
        shown = [
            repr(connection),
            str(connection),
            f"{connection}",
            pprint.pformat(connection),
            repr(connection.describe()),
            connection.label,
            redact.mask(f"cannot reach {connection.fields}"),
            redact.mask(f"driver said: {secret!r} and {secret} and {quote(secret)}"),
        ]
        for text_shown in shown:
            for spelling in (secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1]):
                assert spelling not in text_shown


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_survives_pickling_and_compares_by_value(kind: str) -> None:
    fields = _samples("hunter22")[kind][0]
    connection = KINDS[kind](name="conn", **fields)
    redact.forget_secrets()
    again = pickle.loads(pickle.dumps(connection))
    assert again == connection
    if "hunter22" in str(fields):
        assert redact.mask("said hunter22") == "said ***"
    assert again == KINDS[kind](name="conn", **fields)
    assert again.declared_at == connection.declared_at


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_required_field_is_asked_for_by_class_and_name(kind: str) -> None:
    cls = KINDS[kind]
    fields = _samples("hunter22")[kind][0]
    for field in cls.rules.required:
        for empty in ("", "  "):
            with pytest.raises(DeclarationError) as caught:
                cls(name="conn", **{**fields, field: empty})
            assert isinstance(caught.value, ValueError)
            assert cls.__name__ in caught.value.what
            assert f"{field} is required" in caught.value.what
            assert caught.value.hint
            assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_field_of_text_refuses_another_type_without_quoting_it(kind: str) -> None:
    cls = KINDS[kind]
    fields = _samples("hunter22")[kind][0]
    for field in cls.field_names():
        if field not in (*cls.rules.integers, *cls.rules.booleans):
            with pytest.raises(DeclarationError, match=f"{field} must be text, not list"):
                cls(name="conn", **{**fields, field: ["hunter22"]})


@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_a_connection_needs_a_name(name: Any) -> None:
    with pytest.raises(DeclarationError, match="SQLiteConnection needs a name"):
        c.SQLiteConnection(name=name, path="x")


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="pth"):
        c.SQLiteConnection("x", pth="a")  # type: ignore[call-arg]


def test_an_error_shows_the_line_of_the_user_but_never_quotes_it() -> None:
    with pytest.raises(DeclarationError) as caught:
        c.PostgresConnection("w", url="mysql://ana:hunter22@db/shop")
    shown = str(caught.value)
    assert "test_connection_kinds.py:" in shown
    assert "hunter22" not in shown
    assert "postgres:// or postgresql://" in shown


def test_a_connection_cannot_be_changed() -> None:
    connection = c.SQLiteConnection("x", path="a")
    with pytest.raises(AttributeError):
        connection.path = "b"  # type: ignore[misc]


def test_the_repr_names_class_kind_and_the_fields_that_were_set() -> None:
    shown = repr(c.KafkaConnection("k", bootstrap_servers="a:9092", sasl_plain_username="u", sasl_plain_password="p"))
    assert shown == (
        "KafkaConnection(name='k', kind='kafka', bootstrap_servers='a:9092', "
        "sasl_plain_username='u', sasl_plain_password='<redacted>')"
    )


def test_a_subclass_from_outside_redacts_as_well() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Theirs(c.Connection):
        api_token: str = ""

    assert "hunter22" not in repr(Theirs("t", api_token="hunter22"))


# Servers


def test_a_server_may_be_given_by_its_parts_and_the_url_is_percent_encoded() -> None:
    connection = c.PostgresConnection(
        "w", host="db", port="5433", database="my shop", user="a@b", password="p:/?#@ %", sslmode="require"
    )
    assert connection.port == 5433
    assert connection.dsn == "postgresql://a%40b:p%3A%2F%3F%23%40%20%25@db:5433/my%20shop?sslmode=require"
    assert c.from_url("w", connection.dsn).resolved().address == connection.address  # type: ignore[attr-defined]


def test_the_address_gives_drivers_every_part() -> None:
    address = c.MySQLConnection("w", url="mariadb+pymysql://ana:p%40ss@[::1]/shop?charset=utf8mb4").resolved().address
    assert (address.host, address.port, address.database, address.user) == ("::1", 3306, "shop", "ana")
    assert (address.password, address.params) == ("p@ss", {"charset": "utf8mb4"})
    assert "p@ss" not in repr(address)


def test_several_servers_in_one_url_are_kept_and_the_first_is_the_address() -> None:
    connection = c.PostgresConnection("w", url="postgres://ana@a:5433,b:5434/shop")
    assert connection.dsn == "postgresql://ana@a:5433,b:5434/shop"
    assert (connection.address.host, connection.address.port) == ("a", 5433)


def test_user_and_password_may_complete_a_url() -> None:
    connection = c.PostgresConnection("w", url="postgres://db/shop", user="ana", password="p@ss")
    assert connection.dsn == "postgresql://ana:p%40ss@db/shop"


def test_a_driver_in_the_scheme_is_dropped() -> None:
    assert c.PostgresConnection("w", url="postgresql+psycopg2://db/shop").dsn == "postgresql://db/shop"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "url is required"),
        ({"url": "postgres://db/x", "host": "db"}, "host is given twice"),
        ({"url": "postgres://db/x", "port": 1}, "port is given twice"),
        ({"url": "postgres://a:hunter22@db/x", "password": "hunter22"}, "password is given twice"),
        ({"url": "host=db password=hunter22"}, "url does not begin with postgres://"),
        ({"url": "postgres://ana:hunter22/x@db/shop"}, "must be percent-encoded"),
        ({"url": "postgres://db:hunter22/shop"}, "no port number"),
        ({"host": "db", "port": "hunter22"}, "port must be a whole number"),
        ({"host": "db", "port": True}, "port must be a whole number"),
        ({"host": "db", "sslmode": "requrie"}, "sslmode is not one that exists"),
    ],
)
def test_a_server_that_cannot_be_right_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        c.PostgresConnection("w", **fields)
    assert said in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_wrong_choice_names_the_nearest_valid_one() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'json_lines'"):
        c.ObjectStoreLocalConnection("x", path="a", format="jsonl")
    with pytest.raises(DeclarationError, match="valid: parquet, csv, orc, json_lines"):
        c.ObjectStoreLocalConnection("x", path="a", format="xlsx")


# Files and buckets


def test_a_path_object_is_accepted() -> None:
    assert c.SQLiteConnection("x", path=Path("a") / "b.db").path == "a/b.db"  # type: ignore[arg-type]


def test_a_home_directory_is_filled_in_at_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    assert c.DuckDBConnection("x", path="~/shop.duckdb").resolved().path == "/home/ana/shop.duckdb"


def test_a_bucket_tells_its_place_without_its_login() -> None:
    fields = _samples("hunter22")["delta_s3"][0]
    assert c.DeltaS3Connection("x", **fields, prefix="/lake/").location == "s3://b/lake"
    assert c.ObjectStoreS3Connection("x", **fields, format="csv").location == "s3://b"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/year=2026/events.csv.gz", "csv"),
        ("logs.ndjson", "json_lines"),
        ("logs.JSONL.zst", "json_lines"),
        ("a.json", "json_lines"),
        ("data.parquet", "parquet"),
        ("data.pq.snappy", "parquet"),
        ("data.TSV.bz2", "csv"),
        ("data.orc.lz4", "orc"),
        ("data.orc.zstd", "orc"),
        ("data.gz", None),
        ("data.csv.gz.gz", None),
        ("data", None),
        (".csv", None),
        ("", None),
    ],
)
def test_the_format_of_a_file_is_derived_from_its_ending(path: str, expected: str | None) -> None:
    assert c.format_from_path(path) == expected


# Brokers and registries


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"payload_format": "xml"}, "payload_format is not one that exists"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset is not one that exists"),
        ({"sasl_plain_username": "a"}, "sasl_plain_password is required together with sasl_plain_username"),
        ({"sasl_plain_password": "hunter22"}, "sasl_plain_username is required together with sasl_plain_password"),
        ({"sasl_scram_username": "a", "sasl_scram_password": "hunter22"}, "sasl_scram_mechanism is required"),
        (
            {"sasl_scram_username": "a", "sasl_scram_password": "hunter22", "sasl_scram_mechanism": "md5"},
            "sasl_scram_mechanism is not one",
        ),
        (
            {"sasl_plain_username": "a", "sasl_plain_password": "hunter22", "msk_iam_region": "eu"},
            "msk_iam_region excludes sasl_plain_username",
        ),
        ({"schema_registry_url": "http://sr", "schema_registry": "sr"}, "excludes schema_registry_url"),
        ({"schema_registry": c.SQLiteConnection("x", path="a")}, "is a sqlite connection"),
        ({"schema_registry_url": "sr:8081"}, "does not begin with http://"),
        ({"tls_cert_path": "a.pem"}, "tls_key_path is required together"),
    ],
)
def test_a_kafka_connection_refuses_what_cannot_go_together(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        c.KafkaConnection("k", bootstrap_servers="a:9092", **fields)
    assert said in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_glue_registry_needs_a_format_with_a_schema() -> None:
    glue = c.GlueSchemaRegistryConnection("g", registry_name="r", region="eu")
    with pytest.raises(DeclarationError, match="payload_format must say avro or protobuf"):
        c.KafkaConnection("k", bootstrap_servers="a:9092", schema_registry=glue)
    kafka = c.KafkaConnection("k", bootstrap_servers="a:9092", schema_registry=glue, payload_format="avro")
    assert kafka.schema_registry is glue
    assert kafka.describe()["schema_registry"]["registry_name"] == "r"


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (c.RabbitMQConnection, {"amqp_url": "amqp://mq/%2f"}),
        (c.PubSubConnection, {"project_id": "p"}),
        (c.KinesisConnection, {"stream_name": "s"}),
    ],
)
def test_every_broker_says_how_its_messages_are_written(kind: Any, own: dict[str, str]) -> None:
    made = kind("b", **own, payload_format="avro", schema_registry="sr")
    assert (made.payload_format, made.schema_registry) == ("avro", "sr")
    for fields, said in (
        ({"payload_format": "xml"}, "payload_format is not one that exists"),
        ({"schema_registry": c.SQLiteConnection("x", path="a")}, "is a sqlite connection"),
        ({"schema_registry": c.GlueSchemaRegistryConnection("g", registry_name="r", region="eu")}, "must say avro"),
    ):
        with pytest.raises(DeclarationError, match=said):
            kind("b", **own, **fields)


def test_a_registry_connection_inside_a_broker_is_resolved_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SR_PASS", "geheim-22")
    registry = c.SchemaRegistryConnection("sr", url="http://sr", basic_auth_user="a", basic_auth_password="${SR_PASS}")
    kafka = c.KafkaConnection("k", bootstrap_servers="a:9092", schema_registry=registry).resolved()
    assert isinstance(kafka.schema_registry, c.SchemaRegistryConnection)
    assert kafka.schema_registry.basic_auth_password == "geheim-22"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: c.SchemaRegistryConnection("x", url="http://sr", basic_auth_user="a"),
            "basic_auth_password is required",
        ),
        (lambda: c.SchemaRegistryConnection("x", url="sr"), "url does not begin with http://"),
        (
            lambda: c.GlueSchemaRegistryConnection("x", registry_name="r", region="eu", aws_access_key_id="a"),
            "aws_secret_access_key is required together",
        ),
        (
            lambda: c.GlueSchemaRegistryConnection(
                "x",
                registry_name="r",
                region="eu",
                aws_profile="p",
                aws_access_key_id="a",
                aws_secret_access_key="hunter22",
            ),
            "aws_profile excludes the access keys",
        ),
        (lambda: c.KinesisConnection("x", stream_name="s", secret_access_key="hunter22"), "access_key_id is required"),
        (lambda: c.RabbitMQConnection("x", amqp_url="http://mq"), "amqp_url does not begin with amqp://"),
        (lambda: c.SnowflakeConnection("x", account="a", user="u"), "password is required (or private_key)"),
        (
            lambda: c.PubSubConnection("x", project_id="p", anonymous_auth="perhaps"),
            "anonymous_auth must be true or false",
        ),
    ],
)
def test_other_kinds_refuse_what_cannot_go_together(make: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert said in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_numbers_and_truths_may_be_written_as_text() -> None:
    assert c.PubSubConnection("x", project_id="p", anonymous_auth="TRUE").anonymous_auth is True
    assert c.PubSubConnection("x", project_id="p").anonymous_auth is False
    redshift = c.RedshiftConnection("x", host="h", port="5440", database="d", user="u", password="p")
    assert redshift.port == 5440


def test_a_redshift_url_for_postgres_drivers_is_filled_in_and_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RS_PASS", "p@ss/word")
    connection = c.RedshiftConnection("x", host="h", database="dev", user="a@b", password="${RS_PASS}")
    assert connection.to_postgres_url() == "postgresql://a%40b:p%40ss%2Fword@h:5439/dev"


def test_warehouses_give_single_fields_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ACCOUNT", "LOGIN", "PASSWORD", "PRIVATE_KEY", "PROJECT", "DATASET", "CREDENTIALS"):
        monkeypatch.setenv(f"WH_{variable}", f"value-of-{variable}")
    snow = warehouses.SnowflakeConnection(
        "s", account="${WH_ACCOUNT}", user="${WH_LOGIN}", password="${WH_PASSWORD}", private_key="${WH_PRIVATE_KEY}"
    )
    big = warehouses.BigQueryConnection(
        "b", project="${WH_PROJECT}", dataset="${WH_DATASET}", credentials_path="${WH_CREDENTIALS}"
    )
    assert (snow.resolved_account(), snow.resolved_user()) == ("value-of-ACCOUNT", "value-of-LOGIN")
    assert (snow.resolved_password(), snow.resolved_private_key()) == ("value-of-PASSWORD", "value-of-PRIVATE_KEY")
    assert (big.resolved_project(), big.resolved_dataset()) == ("value-of-PROJECT", "value-of-DATASET")
    assert big.resolved_credentials_path() == "value-of-CREDENTIALS"


def test_a_kind_without_a_url_form_says_so() -> None:
    with pytest.raises(ConfigError, match="a kafka connection has no URL form"):
        _ = c.KafkaConnection("k", bootstrap_servers="a:9092").dsn


# References


def test_references_stay_until_use_and_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = c.PostgresConnection("w", url="${WAREHOUSE_URL}")
    assert connection.url == "${WAREHOUSE_URL}"
    assert connection.dsn == "${WAREHOUSE_URL}"
    with pytest.raises(ConfigError, match="only after resolved"):
        _ = connection.address
    monkeypatch.setenv("WAREHOUSE_URL", "postgres://db/one")
    assert connection.resolved().address.database == "one"
    monkeypatch.setenv("WAREHOUSE_URL", "postgres://db/two")
    assert connection.resolved().address.database == "two"


def test_a_resolved_connection_is_not_filled_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a${PW}b")
    resolved = c.PostgresConnection("w", host="db", database="d", user="u", password="${PW}").resolved()
    assert resolved.password == "a${PW}b"
    assert resolved.resolved() is resolved
    assert resolved.dsn == "postgresql://u:a%24%7BPW%7Db@db/d"


def test_a_raw_password_in_a_variable_may_hold_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = c.PostgresConnection("w", url="postgres://${PGUSER}:${PGPASSWORD}@db:5432/shop")
    monkeypatch.setenv("PGUSER", "ana@tenant")
    monkeypatch.setenv("PGPASSWORD", "p@ss/w:rd?#100%")
    assert connection.resolved().address.password == "p@ss/w:rd?#100%"
    assert connection.resolved().address.user == "ana@tenant"
    assert connection.resolved().url == "postgres://ana%40tenant:p%40ss%2Fw%3Ard%3F%23100%25@db:5432/shop"


def test_a_password_that_is_already_encoded_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "p%40ss")
    assert c.PostgresConnection("w", url="postgres://u:${PGPASSWORD}@db/x").resolved().address.password == "p@ss"


def test_a_variable_may_hold_user_and_password_or_the_rest_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "ana:p@ss")
    address = c.PostgresConnection("w", url="postgres://${LOGIN}@db/x").resolved().address
    assert (address.user, address.password) == ("ana", "p@ss")
    monkeypatch.setenv("WAREHOUSE_DSN", "ana:geheim@db:5433/shop")
    address = c.PostgresConnection("w", url="postgres://${WAREHOUSE_DSN}").resolved().address
    assert (address.host, address.port, address.database) == ("db", 5433, "shop")
    monkeypatch.setenv("WAREHOUSE_DSN", "postgresql://ana:geheim@db:5434/shop")
    assert c.PostgresConnection("w", url="postgres://${WAREHOUSE_DSN}").resolved().address.port == 5434


def test_a_port_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "5433")
    by_parts = c.PostgresConnection("w", host="db", port="${PGPORT}", database="x").resolved()
    by_url = c.PostgresConnection("w", url="postgres://db:${PGPORT}/x").resolved()
    assert by_parts.port == 5433
    assert by_url.address.port == 5433


def test_a_missing_variable_names_connection_field_and_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    connection = c.PostgresConnection("w", host="db", database="x", user="u", password="${NOT_THERE}")
    with pytest.raises(MissingSecret) as caught:
        connection.resolved()
    shown = str(caught.value)
    assert "connection 'w', field password, the environment variable NOT_THERE is not set" in shown
    assert "export NOT_THERE=…" in shown
    assert "test_connection_kinds.py:" in shown


def test_a_value_that_breaks_a_field_check_is_reported_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = c.PostgresConnection("w", url="${WAREHOUSE_URL}")
    for value in ("", "hunter22", "mysql://ana:hunter22@db/x"):
        monkeypatch.setenv("WAREHOUSE_URL", value)
        with pytest.raises(ConfigError) as caught:
            connection.resolved()
        assert "${WAREHOUSE_URL}" in str(caught.value)
        assert "hunter22" not in str(caught.value)


def test_filled_in_secrets_are_masked_everywhere_but_hosts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X_ONE", "geheim-22")
    monkeypatch.setenv("X_TWO", "db.example.org")
    c.PostgresConnection("w", host="${X_TWO}", database="shop", user="ana", password="${X_ONE}").resolved()
    assert redact.mask("db.example.org refused geheim-22") == "db.example.org refused ***"


def test_a_resolved_connection_redacts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_URL", "postgres://ana:geheim-22@db/shop")
    resolved = c.PostgresConnection("w", url="${WAREHOUSE_URL}").resolved()
    assert repr(resolved) == "PostgresConnection(name='w', kind='postgres', url='postgres://ana:***@db/shop')"


def test_a_keyword_that_a_connection_does_not_have_is_reported_with_the_nearest_that_it_has() -> None:
    with pytest.raises(TypeError, match="KafkaConnection has no keyword 'sasl_plain_pasword'") as refused:
        c.KafkaConnection("events", bootstrap_servers="h:9092", sasl_plain_pasword="x")  # type: ignore[call-arg]
    assert "sasl_plain_password" in str(refused.value.hint)  # type: ignore[attr-defined]
