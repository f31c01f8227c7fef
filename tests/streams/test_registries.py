"""Schema registries: Apicurio for Confluent's protocol, a server of our own for its logins, moto as a double of Glue."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pyarrow as pa
import pytest

from ematix_flow.backends.kafka.registry_payloads import RegistryPayloads
from ematix_flow.connections import GlueSchemaRegistryConnection, KafkaConnection, SchemaRegistryConnection
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import (
    ConfigError,
    ConnectionFailed,
    DeclarationError,
    PermissionDenied,
    Unreachable,
    WrongType,
)
from ematix_flow.glue_schema_registry import (
    fetch_schema_by_name,
    fetch_schema_by_uuid,
    register_glue_schema_lookup_callback,
    register_schema,
    unregister_glue_schema_lookup_callback,
)
from ematix_flow.messages.decode import DecodingState
from ematix_flow.messages.encode import subject_of
from ematix_flow.messages.registries.confluent import ConfluentRegistry
from ematix_flow.messages.registries.glue import GlueRegistry
from ematix_flow.messages.registries.registry import (
    AVRO,
    PROTOBUF,
    SchemaRefused,
    UnknownSchema,
    open_registry,
    registry_of,
)
from tests.services import certificates
from tests.streams.messages import avro_long, avro_text, errors, payloads, proto, record, rows

breadth = pytest.mark.full("a case beside the ordinary ones")
ORDER = record("Order", id="long", name="string")


class _Answers(BaseHTTPRequestHandler):
    """A registry with one schema that asks who is there, and counts how often."""

    asked: ClassVar[list[str]] = []
    status: ClassVar[int] = 200

    def do_GET(self) -> None:
        self.asked.append(self.path)
        wanted = "Basic " + base64.b64encode(b"ana:the-password").decode()
        status = self.status if self.headers.get("Authorization") == wanted else 401
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/stolen")
        self.end_headers()
        body: dict[str, Any] = {"schema": '"long"'} if status == 200 else {"message": "no: ana:the-password"}
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        return None


@pytest.fixture
def guarded() -> Iterator[ThreadingHTTPServer]:
    """A registry that lets only ana in."""
    _Answers.asked, _Answers.status = [], 200
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def _address(server: ThreadingHTTPServer, scheme: str = "http", login: str = "") -> str:
    return f"{scheme}://{login}127.0.0.1:{server.server_port}"


def test_schemas_are_registered_found_and_refused(schema_registry: str) -> None:
    registry = open_registry(SchemaRegistryConnection("sr", url=schema_registry))
    subject = f"t{secrets.token_hex(4)}/odd name-value"
    assert registry.latest(subject) is None
    number = registry.register(subject, ORDER, AVRO)
    assert registry.register(subject, ORDER, AVRO) == number
    assert json.loads(registry.schema(number).text) == json.loads(ORDER)
    found = registry.latest(subject)
    assert found is not None
    assert (found[0], found[1].kind) == (number, AVRO)
    with pytest.raises(UnknownSchema, match="knows no schema 987654"):
        registry.schema(987654)
    with pytest.raises(SchemaRefused, match="does not take the schema"):
        registry.register(subject, '{"type": "record"}', AVRO)


def test_a_login_is_sent_and_never_shown(guarded: ThreadingHTTPServer) -> None:
    registry = ConfluentRegistry(_address(guarded), user="ana", password="the-password")
    assert registry.schema(1).text == '"long"'
    assert registry.schema(1) is registry.schema(1)
    assert _Answers.asked == ["/schemas/ids/1"]
    assert ConfluentRegistry(_address(guarded, login="ana:the-password@")).schema(1).text == '"long"'
    stranger = ConfluentRegistry(_address(guarded), user="ana", password="another-password")
    with pytest.raises(PermissionDenied, match="answered 401") as caught:
        stranger.schema(1)
    assert "the-password" not in str(caught.value)
    assert "another-password" not in f"{stranger!r} {caught.value} {caught.value.to_dict()}"


@pytest.mark.parametrize(("status", "kind"), [(500, Unreachable), (503, Unreachable), (302, ConnectionFailed)])
def test_errors_of_a_registry_are_distinguished(
    guarded: ThreadingHTTPServer, status: int, kind: type[Exception]
) -> None:
    _Answers.status = status
    with pytest.raises(ConnectionFailed) as caught:
        ConfluentRegistry(_address(guarded, login="ana:the-password@")).schema(1)
    assert type(caught.value) is kind
    assert len(_Answers.asked) == (2 if kind is Unreachable else 1)


def test_a_registry_behind_certificates(guarded: ThreadingHTTPServer, tmp_path: Path) -> None:
    certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    context.load_verify_locations(tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    guarded.socket = context.wrap_socket(guarded.socket, server_side=True)
    files = {name: str(tmp_path / file) for name, file in
             {"tls_ca_path": "ca.pem", "tls_cert_path": "client.pem", "tls_key_path": "client.key"}.items()}  # fmt: skip
    login = {"basic_auth_user": "ana", "basic_auth_password": "the-password"}
    url = _address(guarded, "https")
    assert open_registry(SchemaRegistryConnection("sr", url=url, **login, **files)).schema(1).text == '"long"'
    with pytest.raises(Unreachable, match="cannot be reached"):
        open_registry(SchemaRegistryConnection("sr", url=url, **login)).schema(1)
    with pytest.raises(ConfigError, match="certificates of the schema registry"):
        ConfluentRegistry(url, ca=str(tmp_path / "absent.pem"))


def test_a_broker_names_its_registry(schema_registry: str) -> None:
    plain = KafkaConnection("events", bootstrap_servers="k:9092")
    assert registry_of(plain) is None
    by_url = KafkaConnection("events", bootstrap_servers="k:9092", schema_registry_url=schema_registry)
    assert isinstance(registry_of(by_url), ConfluentRegistry)
    known = SchemaRegistryConnection("sr", url=schema_registry)
    by_name = KafkaConnection("events", bootstrap_servers="k:9092", schema_registry="sr")
    found = registry_of(by_name, find=lambda name: {"sr": known}[name])
    assert found is not None
    assert found.label == schema_registry.rstrip("/")
    with pytest.raises(WrongType, match="is no schema registry"):
        open_registry(plain)


@pytest.fixture
def glue() -> Iterator[GlueRegistry]:
    """Glue's registry `events`, as moto plays it."""
    pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    connection = GlueSchemaRegistryConnection(
        "g",
        registry_name="events",
        region="eu-central-1",
        aws_access_key_id="flow",
        aws_secret_access_key="secret-of-g",
    )
    registry = GlueRegistry.of(connection, endpoint=f"http://{host}:{port}")
    with contextlib.suppress(registry._client.exceptions.AlreadyExistsException):  # asked again by a slow machine
        registry._client.create_registry(RegistryName="events")
    yield registry
    registry._client.delete_registry(RegistryId={"RegistryName": "events"})  # moto keeps it for this whole process
    server.stop()


@pytest.fixture(scope="module")
def spark() -> Any:
    """The engine's own session, with Avro."""
    session = spark_session({"avro"})
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def _framed(version: Any, body: bytes, *, is_compressed: bool = False) -> bytes:
    head = bytes([3, 5 if is_compressed else 0]) + UUID(str(version)).bytes
    return head + (zlib.compress(body) if is_compressed else body)


def test_glue_keeps_versions_of_schemas(glue: GlueRegistry) -> None:
    assert glue.latest("orders") is None
    first = glue.register("orders", ORDER, AVRO)
    newer = glue.register("orders", record("Order", id="long", name="string", n=("long", 0)), AVRO)
    assert glue.register("orders", ORDER, AVRO) == first
    found = glue.latest("orders")
    assert found is not None
    assert found[0] == newer
    assert found[1].order > glue.schema(first).order
    with pytest.raises(UnknownSchema, match="knows no schema version"):
        glue.schema(str(uuid4()))


def test_glue_is_asked_by_hand(glue: GlueRegistry) -> None:
    connection = GlueSchemaRegistryConnection("g", registry_name="events", region="eu-central-1")
    by_hand: dict[str, Any] = {"_client": glue._client}
    made = register_schema(
        connection, schema_name="clicks", data_format="avro", schema_definition=ORDER, description="who clicked", **by_hand
    )  # fmt: skip
    assert (made.data_format, made.version_number, json.loads(made.schema_definition)) == ("AVRO", 1, json.loads(ORDER))
    assert made.schema_arn.endswith("events/clicks")
    newer = record("Order", id="long", name="string", n=("long", 0))
    second = register_schema(
        connection, schema_name="clicks", data_format="AVRO", schema_definition=newer, **by_hand
    )  # fmt: skip
    assert fetch_schema_by_uuid(connection, made.schema_uuid, **by_hand) == made
    assert fetch_schema_by_name(connection, "clicks", **by_hand) == second
    assert fetch_schema_by_name(connection, "clicks", version=1, **by_hand) == made
    with pytest.raises(UnknownSchema, match="knows no schema 'taps'"):
        fetch_schema_by_name(connection, "taps", **by_hand)
    with pytest.raises(DeclarationError, match="no version 'first'"):
        fetch_schema_by_name(connection, "clicks", version="first", **by_hand)
    with pytest.raises(DeclarationError, match="keeps no schemas of 'xml'"):
        register_schema(connection, schema_name="c", data_format="xml", schema_definition="", **by_hand)


def test_a_glue_registry_stays_open_for_all_streams_of_a_process() -> None:
    pytest.importorskip("boto3")
    connection = GlueSchemaRegistryConnection("g", registry_name="shared", region="eu-central-1")
    register_glue_schema_lookup_callback(connection)
    assert open_registry(connection) is open_registry(connection)
    unregister_glue_schema_lookup_callback("shared")
    assert open_registry(connection) is not open_registry(connection)


def test_glue_that_does_not_answer_may_pass() -> None:
    pytest.importorskip("boto3")
    connection = GlueSchemaRegistryConnection(
        "g",
        registry_name="events",
        region="eu-central-1",
        aws_access_key_id="flow",
        aws_secret_access_key="secret-of-g",
    )
    with pytest.raises(Unreachable, match="glue:events cannot be reached") as caught:
        GlueRegistry.of(connection, endpoint="http://127.0.0.1:1").schema(str(uuid4()))
    assert "secret-of-g" not in str(caught.value)


def test_glue_messages_are_read_compressed_and_plain(spark: Any, glue: GlueRegistry) -> None:
    version = glue.register("orders", ORDER, AVRO)
    newer = glue.register("orders", record("Order", id="long", name="string", n=("long", 9)), AVRO)
    body = avro_long(1) + avro_text("ana")
    broken = bytes([3, 5]) + UUID(str(version)).bytes + b"no zlib"
    values = [
        _framed(version, body), _framed(version, body, is_compressed=True), _framed(newer, body + avro_long(2)),
        broken, b"\x00\x00\x00\x00\x01" + body, _framed(uuid4(), body),
    ]  # fmt: skip
    found = rows(spark, values, DecodingState("avro", registry=glue))
    ana = {"id": 1, "name": "ana", "n": 9}
    assert payloads(found[:3]) == [ana, ana, {**ana, "n": 2}]
    told = [str(error) for error in errors(found)[3:]]
    assert told[0] == f"the bytes are not what schema {version} describes"
    assert told[1] == "the message does not begin with the id of its schema"
    assert told[2].startswith("the registry glue:events knows no schema version")


def test_a_notebook_names_its_schema_in_glue_as_a_stream_does(glue: GlueRegistry) -> None:
    assert RegistryPayloads(glue).messages(AVRO, "clicks", pa.record_batch({"id": [1]}))
    assert glue.latest(subject_of("clicks", glue)) is not None
    assert glue.latest("clicks-value") is None


@breadth
def test_glue_messages_of_protobuf_say_which_they_are_when_compressed(spark: Any, glue: GlueRegistry) -> None:
    text = 'syntax = "proto3"; message B { int64 b = 1; } message A { int64 a = 1; }'
    version = glue.register("packed", text, PROTOBUF)
    values = [_framed(version, bytes([index]) + proto({1: 5}), is_compressed=True) for index in (1, 0)]
    broken = bytes([3, 5]) + UUID(str(version)).bytes + b"no zlib"
    found = rows(
        spark, [*values, _framed(version, b"\x01" + proto({1: 5})), broken], DecodingState("protobuf", registry=glue)
    )
    assert payloads(found[:3]) == [{"b": 5, "a": None}, {"b": None, "a": 5}, {"b": 5, "a": None}]
    said = "the bytes behind its id do not say which of its messages follows"
    assert errors(found) == [None, None, None, f"schema {version} cannot be used: {said}"]


@breadth
def test_glue_counts_the_messages_of_a_protobuf_schema_by_name(spark: Any, glue: GlueRegistry) -> None:
    text = 'syntax = "proto3"; message B { message A { int64 a = 1; } int64 b = 1; } message A { int64 first = 1; }'
    version = glue.register("protos", text, PROTOBUF)
    values = [_framed(version, bytes([index]) + proto({1: 5})) for index in range(3)]
    found = payloads(rows(spark, values, DecodingState("protobuf", registry=glue)))
    assert [next(name for name, value in row.items() if value == 5) for row in found] == ["first", "b", "a"]
