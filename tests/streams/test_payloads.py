"""JSON and raw messages as rows: values out are values in, columns grow with the messages, bad rows say why."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Observation
from pyspark.sql.types import StructType

from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.messages.decode import NOT_LEARNED, TOMBSTONE, DecodingState, decode, learn
from tests.streams.messages import (
    HEADERS,
    SENT,
    Memory,
    columns,
    envelopes,
    errors,
    in_order,
    json_rows,
    objects,
    payloads,
    rows,
)

breadth = pytest.mark.full("a case beside the ordinary ones")


@pytest.fixture(scope="module")
def spark() -> Any:
    """The engine's own session."""
    session = spark_session()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


def learning(memory: Memory | None = None) -> DecodingState:
    """A stream that is told nothing about its messages."""
    return DecodingState("json", known=memory or Memory())


@pytest.mark.full
def test_raw_bytes_are_one_column_as_they_are(spark: Any) -> None:
    found = rows(spark, [b"\xff\x00", b"", None], DecodingState("raw_bytes"))
    assert payloads(found) == [{"payload": b"\xff\x00"}, {"payload": b""}, {"payload": None}]


@pytest.mark.full
def test_a_row_tells_where_its_message_came_from_and_when(spark: Any) -> None:
    (found,) = json_rows(spark, [{"a": 1}], learning())
    assert found["_source"] == {
        "topic": "orders", "partition": 3, "offset": 100, "key": b"k0", "message_id": "m0",
        "headers": [{"key": key, "value": value} for key, value in HEADERS], "timestamp": SENT.replace(tzinfo=None),
    }  # fmt: skip
    assert found["_event_ts"] == SENT.replace(tzinfo=None)
    assert found["_raw"] == b'{"a": 1}'
    assert list(found) == ["a", "_event_ts", "_source", "_raw", "_error"]


@pytest.mark.full
def test_a_message_may_say_itself_when_it_happened(spark: Any) -> None:
    own = {"_event_ts": "2025-12-31T23:59:59.5+01:00"}
    found = json_rows(spark, [own, {"_event_ts": None}, {}], learning())
    sent = SENT.replace(tzinfo=None)
    assert [row["_event_ts"] for row in found] == [datetime(2025, 12, 31, 22, 59, 59, 500_000), sent, sent]
    millis = json_rows(spark, [{"_event_ts": 1_000}, {"_event_ts": 2**62}], learning())
    assert [row["_event_ts"] for row in millis] == [datetime(1970, 1, 1, 0, 0, 1), sent]
    assert errors(millis) == [None, "the message's _event_ts is no point in time"]


def test_types_are_learned_from_the_messages(spark: Any) -> None:
    message = {
        "id": 7, "price": 1.5, "paid": True, "name": "ana", "at": "2026-01-31T12:00:00Z", "day": "2026-01-31",
        "lines": [{"sku": "a", "n": 2}], "tags": ["x"], "buyer": {"city": "Rome", "geo": {"lat": 41.9}},
    }  # fmt: skip
    frame = decode(objects(spark, message), learning())
    assert list(columns(frame).items()) == [
        ("id", "bigint"), ("price", "double"), ("paid", "boolean"), ("name", "string"), ("at", "timestamp"),
        ("day", "string"), ("lines", "array<struct<n:bigint,sku:string>>"), ("tags", "array<string>"),
        ("buyer", "struct<city:string,geo:struct<lat:double>>"),
    ]  # fmt: skip
    (found,) = payloads(in_order(frame))
    assert found == {**message, "at": datetime(2026, 1, 31, 12)}


@breadth
def test_text_is_a_timestamp_only_where_every_value_is_one(spark: Any) -> None:
    values = [{"a": "2026-01-31T12:00:00Z", "b": "2026-01-31T12:00:00Z"}, {"a": "2026-02-30T12:00:00Z", "b": None}]
    frame = decode(objects(spark, *values), learning())
    assert columns(frame) == {"a": "string", "b": "timestamp"}


@breadth
def test_null_and_missing_fields_are_null(spark: Any) -> None:
    found = json_rows(spark, [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"b": "y"}, {}], learning())
    assert payloads(found) == [
        {"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": None, "b": "y"}, {"a": None, "b": None},
    ]  # fmt: skip


@breadth
def test_a_field_without_a_value_becomes_a_column_with_its_first_one(spark: Any) -> None:
    how = learning()
    first = decode(objects(spark, {"id": 1, "a": None, "b": {}, "c": [], "d": [{}], "e": {"f": None}}), how)
    assert columns(first) == {"id": "bigint"}
    assert payloads(in_order(first)) == [{"id": 1}]
    later = {"id": 2, "a": 5, "b": {"x": 1}, "c": ["y"], "d": [{"z": True}], "e": {"f": 1.5}}
    assert payloads(json_rows(spark, [later], how)) == [later]


def test_columns_grow_with_the_messages_and_never_shrink(spark: Any) -> None:
    memory = Memory()
    how = learning(memory)
    assert payloads(json_rows(spark, [{"id": 1}], how)) == [{"id": 1}]
    values = [{"id": 2, "name": "ana"}, {"id": 3, "at": {"city": "Rome"}}]
    assert payloads(json_rows(spark, values, how)) == [
        {"id": 2, "name": "ana", "at": None}, {"id": 3, "name": None, "at": {"city": "Rome"}},
    ]  # fmt: skip
    deeper = [{"id": 4, "at": {"city": "Oslo", "geo": {"lat": 59.9}}, "lines": [{"sku": "a"}]}]
    assert payloads(json_rows(spark, deeper, how)) == [{"name": None, **deeper[0]}]
    inside = [{"lines": [{"sku": "a"}, {"sku": "b", "n": 1}]}]
    (found,) = payloads(json_rows(spark, inside, how))
    assert found["lines"] == [{"sku": "a", "n": None}, {"sku": "b", "n": 1}]
    again = DecodingState("json", known=memory)  # the stream's next process
    assert list(columns(decode(objects(spark, {"id": 5}), again))) == ["id", "name", "at", "lines"]


@breadth
def test_types_grow_with_the_values(spark: Any) -> None:
    how = learning()
    json_rows(spark, [{"a": 1, "b": True, "c": {"d": 1}, "e": [1], "f": "2026-01-31T12:00:00Z"}], how)
    values = [{"a": 0.5, "b": "yes", "c": "plain", "e": ["x"], "f": "tomorrow"}, {"a": 2, "b": False, "c": {"d": 2}}]
    frame = decode(objects(spark, *values), how)
    assert columns(frame) == {"a": "double", "b": "string", "c": "string", "e": "array<string>", "f": "string"}
    first, second = payloads(in_order(frame))
    assert first == {"a": 0.5, "b": "yes", "c": "plain", "e": ["x"], "f": "tomorrow"}
    assert (second["a"], second["b"], json.loads(second["c"])) == (2.0, "false", {"d": 2})


@pytest.mark.full
def test_nothing_is_looked_at_twice_while_nothing_is_new(spark: Any) -> None:
    memory = Memory()
    how = learning(memory)
    json_rows(spark, [{"a": 1}], how)
    watch = Observation()
    frame = decode(objects(spark, {"a": 2}, {"a": 3}), how, watch=watch)
    assert [row["a"] for row in in_order(frame)] == [2, 3]
    assert watch.get == {"rows": 2, "bad": 0, "unlearned": 0}
    assert len(memory.kept) == 1


def test_declared_columns_are_read_by_one_projection(spark: Any) -> None:
    kinds = {"id": "BIGINT", "name": "STRING", "price": "DOUBLE", "paid": "BOOLEAN", "at": "TIMESTAMP"}
    frame = decode(envelopes(spark, []), DecodingState("json", kinds))
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        frame.where("_error IS NULL").select(*kinds).explain("extended")
    physical = plan.getvalue().partition("== Physical Plan ==")[2]
    assert len([line for line in physical.splitlines() if "from_json(" in line]) == 1, physical
    assert "Python" not in physical


@pytest.mark.full
def test_the_pass_that_writes_finds_what_is_new(spark: Any) -> None:
    how = learning()
    json_rows(spark, [{"a": 1}], how)
    messages, watch = objects(spark, {"a": 2}, {"a": 3, "b": "new"}, {"a": "text"}), Observation()
    frame = decode(messages, how, watch=watch)
    marked = errors(in_order(frame))
    assert watch.get == {"rows": 3, "bad": 2, "unlearned": 2}
    assert marked[0] is None
    assert all(str(error).startswith(NOT_LEARNED) for error in marked[1:])
    assert learn(frame, how)
    again = decode(messages, how, watch=Observation())
    assert payloads(in_order(again)) == [{"a": "2", "b": None}, {"a": "3", "b": "new"}, {"a": "text", "b": None}]
    assert not learn(again, how)


BAD = {
    "a tombstone": (None, TOMBSTONE),
    "no bytes": (b"", "the message is empty"),
    "blanks": (b"  ", "the message is not valid JSON"),
    "not JSON": (b"hello", "the message is not valid JSON"),
    "half an object": (b'{"a": 1, "b"', "the message is not valid JSON"),
    "two objects": (b'{"a": 1}{"a": 2}', "the message is not valid JSON"),
    "a list without brackets": (b'{"a": 1}, {"a": 2}', "the message is not valid JSON"),
    "something behind it": (b'{"a": 1} x', "the message is not valid JSON"),
    "a brace too many": (b'{"a": 1}} x', "the message is not valid JSON"),
    "single quotes": (b"{'a': 1}", "the message is not valid JSON"),
    "an array": (b'[{"a": 1}]', "a JSON array stands where an object belongs"),
    "a number": (b"5", "a JSON value stands where an object belongs"),
    "a text": (b'"{"', "a JSON value stands where an object belongs"),
    "null": (b"null", "a JSON value stands where an object belongs"),
    "not UTF-8": (b'{"a": "\xff"}', "the message is not valid UTF-8"),
    "a number of 2000 digits": (b'{"a": ' + b"9" * 2000 + b"}", "the message is not valid JSON"),
    "2000 levels": (b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}", "the message is not valid JSON"),
}


@pytest.mark.parametrize("how", [learning(), DecodingState("json", {"a": "BIGINT"})], ids=["learned", "declared"])
def test_bad_messages_say_why_and_leave_the_others_alone(spark: Any, how: DecodingState) -> None:
    found = rows(spark, [b'{"a": 1}', *(value for value, _ in BAD.values()), b'{"a": 2}'], how)
    assert dict(zip(BAD, errors(found)[1:-1], strict=True)) == {name: error for name, (_, error) in BAD.items()}
    assert [(row["a"], row["_error"]) for row in (found[0], found[-1])] == [(1, None), (2, None)]
    assert [row["_raw"] for row in found[1:-1]] == [value for value, _ in BAD.values()]


@breadth
def test_only_bad_messages_teach_nothing(spark: Any) -> None:
    memory = Memory()
    how = learning(memory)
    assert errors(rows(spark, [b"hello", b"[]", b"5"], how)) != [None] * 3
    assert memory.kept == []
    assert rows(spark, [], how) == []
    assert payloads(json_rows(spark, [{"a": 1}], how)) == [{"a": 1}]


@breadth
def test_of_a_name_that_occurs_twice_the_last_value_counts(spark: Any) -> None:
    found = rows(spark, [b'{"a": 1}', b'{"a": 2, "a": 3}'], learning())
    assert payloads(found) == [{"a": 1}, {"a": 3}]


@breadth
def test_names_that_differ_in_case_only_are_columns_of_their_own(spark: Any) -> None:
    values = [{"id": 1, "ID": 2, "in": {"x": 1, "X": "2026-01-31T12:00:00Z"}}]
    (found,) = payloads(json_rows(spark, values, learning()))
    assert sorted((found["id"], found["id_2"]) if "id_2" in found else (found["id"], found["ID_2"])) == [1, 2]
    assert sorted(map(str, found["in"].values())) == ["1", "2026-01-31 12:00:00"]


@breadth
def test_a_payload_cannot_take_the_place_of_the_messages_own_columns(spark: Any) -> None:
    (found,) = json_rows(spark, [{"_raw": "mine", "_error": "mine", "_source": 1}], learning())
    assert (found["_raw_2"], found["_error_2"], found["_source_2"], found["_error"]) == ("mine", "mine", 1, None)


@breadth
def test_huge_numbers(spark: Any) -> None:
    how = learning()
    big, small = 2**63 - 1, -(2**63)
    values = [{"whole": big, "huge": 2**64, "point": 5.0, "many": 1e300}, {"whole": small, "huge": 1, "point": 5}]
    frame = decode(objects(spark, *values), how)
    assert columns(frame) == {"whole": "bigint", "huge": "string", "point": "double", "many": "double"}
    first, second = payloads(in_order(frame))
    assert first == {"whole": big, "huge": str(2**64), "point": 5.0, "many": 1e300}
    assert second == {"whole": small, "huge": "1", "point": 5.0, "many": None}
    (later,) = payloads(json_rows(spark, [{"whole": 2**70, "point": 10**25}], how))
    assert (later["whole"], later["point"]) == (str(2**70), str(10**25))


@breadth
def test_not_a_number_is_read_where_python_wrote_it(spark: Any) -> None:
    found = payloads(rows(spark, [b'{"a": NaN, "b": 1}', b'{"a": 1.5, "b": 2}'], learning()))
    assert str(found[0]["a"]) == "nan"
    assert (found[0]["b"], found[1]) == (1, {"a": 1.5, "b": 2})


@breadth
def test_a_dictionary_with_ever_new_names_is_kept_as_text(spark: Any) -> None:
    wide = {f"user{number}": number for number in range(300)}
    (found,) = payloads(json_rows(spark, [{"id": 1, "seen": wide}], learning()))
    assert json.loads(found["seen"]) == wide


@pytest.mark.full
def test_declared_columns_are_exactly_these(spark: Any) -> None:
    kinds = {
        "id": "INT", "price": "DECIMAL(10,2)", "at": "TIMESTAMP", "day": "DATE", "data": "BINARY", "n": "STRING",
        "in": "STRUCT<x: DOUBLE>", "l": "ARRAY<INT>", "m": "MAP<STRING, INT>", "absent": "BOOLEAN",
    }  # fmt: skip
    value = {
        "id": 1, "price": 12.34, "at": "2026-01-31 12:00:00", "day": "2026-01-31", "data": "AQI=", "n": 5,
        "in": {"x": 1, "y": 2}, "l": [1, None], "m": {"k": 1}, "more": "is left out",
    }  # fmt: skip
    frame = decode(objects(spark, value), DecodingState("json", kinds))
    assert list(columns(frame)) == list(kinds)
    (found,) = payloads(in_order(frame))
    assert found["price"] == Decimal("12.34")
    assert (found["at"], str(found["day"]), found["data"]) == (datetime(2026, 1, 31, 12), "2026-01-31", b"\x01\x02")
    assert (found["in"], found["l"], found["m"], found["absent"]) == ({"x": 1.0}, [1, None], {"k": 1}, None)


@pytest.mark.full
def test_a_value_that_does_not_fit_its_declared_column_is_named(spark: Any) -> None:
    how = DecodingState("json", {"id": "INT", "at": "TIMESTAMP", "in": "STRUCT<x: INT>"})
    values = [{"id": 2**40}, {"id": "1"}, {"at": 1_700_000_000}, {"at": "soon", "id": True}, {"in": {"x": "1"}}]
    misfit = "a value does not fit its column"
    assert errors(json_rows(spark, values, how)) == [
        f"{misfit}: id", f"{misfit}: id", f"{misfit}: at",
        f"{misfit}: id, at", misfit,
    ]  # fmt: skip


@pytest.mark.full
def test_a_declared_type_that_is_none_is_refused(spark: Any) -> None:
    with pytest.raises(DeclarationError, match="field 'id' of the messages has the type 'NUMBERISH'"):
        decode(objects(spark, {}), DecodingState("json", {"id": "NUMBERISH"}))


@pytest.mark.full
def test_a_payload_that_is_none_is_refused(spark: Any) -> None:
    with pytest.raises(DeclarationError, match="there is no payload 'jsn'"):
        decode(objects(spark, {}), DecodingState("jsn"))


@breadth
def test_what_was_learned_is_a_spark_type(spark: Any) -> None:
    memory = Memory()
    json_rows(spark, [{"a": [1], "b": {}}], learning(memory))
    kept = StructType.fromJson(json.loads(memory.kept[-1]))
    assert kept.simpleString() == "struct<a:array<bigint>,b:struct<>>"


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda name: not name.startswith("_")
)
scalars = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
}


def _shapes(depth: int) -> st.SearchStrategy[Any]:
    flat = st.sampled_from(sorted(scalars))
    if depth == 0:
        return flat
    inner = _shapes(depth - 1)
    return st.one_of(flat, st.tuples(st.just("list"), inner), _records(inner))


def _records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, inner, min_size=1, max_size=4).filter(
        lambda shape: len({name.lower() for name in shape}) == len(shape)
    )


def _values(shape: Any) -> st.SearchStrategy[Any]:
    if isinstance(shape, str):
        return scalars[shape]
    if isinstance(shape, tuple):
        return st.lists(_values(shape[1]), min_size=1, max_size=3)
    return st.fixed_dictionaries({name: _values(inner) for name, inner in shape.items()})


def _holes(draw: Any, value: Any, shape: Any) -> Any:
    """The same value with nulls and missing names in it."""
    if isinstance(shape, dict) and value is not None:
        fate = {name: draw(st.sampled_from(["kept", "kept", "null", "missing"])) for name in shape}
        kept = {name: _holes(draw, value[name], shape[name]) for name in shape if fate[name] == "kept"}
        return kept | {name: None for name in shape if fate[name] == "null"}
    return value


def _expected(value: Any, shape: Any) -> Any:
    if isinstance(shape, dict) and value is not None:
        return {name: _expected(value.get(name), inner) for name, inner in shape.items()}
    if isinstance(shape, tuple) and value is not None:
        return [_expected(item, shape[1]) for item in value]
    return value


@breadth
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_out_are_values_in(spark: Any, data: st.DataObject) -> None:
    shape = data.draw(_records(_shapes(2)))
    whole = data.draw(_values(shape))
    others = [_holes(data.draw, data.draw(_values(shape)), shape) for _ in range(data.draw(st.integers(0, 6)))]
    frame = decode(objects(spark, whole, *others), learning())
    assert payloads_of(frame) == [_expected(value, shape) for value in (whole, *others)]


anything = st.recursive(
    st.one_of(st.none(), *scalars.values(), st.integers(-(10**40), 10**40)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=8,
)


@breadth
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), anything, max_size=3), min_size=1, max_size=8))
def test_any_objects_together_are_decoded(spark: Any, values: list[dict[str, Any]]) -> None:
    how = learning()
    half = len(values) // 2
    for part in (values[:half], values[half:]):
        if part:
            assert [row["_error"] for row in json_rows(spark, part, how)] == [None] * len(part)


def payloads_of(frame: Any) -> list[dict[str, Any]]:
    found = in_order(frame)
    assert [row["_error"] for row in found] == [None] * len(found)
    return [{name: value for name, value in row.items() if name not in OWN} for row in found]


OWN = ("_event_ts", "_source", "_raw", "_error")


@breadth
def test_an_envelope_frame_may_have_its_columns_in_any_order(spark: Any) -> None:
    frame = envelopes(spark, [b'{"a": 1}']).select("timestamp", "value", "key", "headers", "message_id", "offset",
                                                   "partition", "topic")  # fmt: skip
    assert payloads(in_order(decode(frame, learning()))) == [{"a": 1}]
