"""Tables by decorator and by base class: every type, every way to say NULL, every refusal."""

# No `from __future__ import annotations` here: real annotations and quoted ones are different tests.

import dataclasses
import json
import sys
from types import ModuleType
from typing import Annotated, Any, ClassVar, Optional

import pytest

from ematix_flow import (
    JSON,
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Column,
    Date,
    Double,
    Float,
    Integer,
    ManagedTable,
    Numeric,
    SmallInt,
    String,
    Text,
    Timestamp,
    TimestampTZ,
    ematix,
    natural_key,
    nullable,
    pk,
)
from ematix_flow.declare.table import TableError
from ematix_flow.declare.table_data import table_from
from ematix_flow.foundation.errors import MissingColumn
from ematix_flow.normalize import lower, trim


@ematix.table(schema="analytics")
class EveryType:
    """A column of every type."""

    small: SmallInt
    whole: Integer
    big: Annotated[BigInt, pk()]
    single: Float
    double: Double
    yes: Boolean
    words: Text
    short: String[20]
    price: Numeric[12, 2]
    day: Date
    local: Timestamp
    moment: TimestampTZ
    document: JSON
    tree: JSONB
    mark: UUID
    raw: Bytes


KINDS = {
    "small": {"kind": "small_int"}, "whole": {"kind": "integer"}, "big": {"kind": "big_int"},
    "single": {"kind": "float"}, "double": {"kind": "double"}, "yes": {"kind": "boolean"}, "words": {"kind": "text"},
    "short": {"kind": "string", "length": 20}, "price": {"kind": "numeric", "precision": 12, "scale": 2},
    "day": {"kind": "date"}, "local": {"kind": "timestamp"}, "moment": {"kind": "timestamp_tz"},
    "document": {"kind": "json"}, "tree": {"kind": "jsonb"}, "mark": {"kind": "uuid"}, "raw": {"kind": "bytes"},
}  # fmt: skip


def columns_of(table: type[ManagedTable]) -> dict[str, Column]:
    return {column.name: column for column in table.spec().columns}


def test_every_type_keeps_its_kind_and_its_place() -> None:
    spec = EveryType.spec()
    assert {column.name: column.type.to_spec() for column in spec.columns} == KINDS
    assert list(spec.column_names) == list(KINDS)
    assert spec.primary_key == ("big",)
    assert not any(column.nullable for column in spec.columns)


def test_a_table_is_named_after_its_class_in_snake_case() -> None:
    assert EveryType.spec().qualified == "analytics.every_type"

    @ematix.table(schema="raw")
    class HTTPServerLog:
        line: Text

    @ematix.table(schema="raw", name="log")
    class Renamed:
        line: Text

    assert HTTPServerLog.spec().qualified == "raw.http_server_log"
    assert Renamed.spec().qualified == "raw.log"


def test_every_way_to_say_null_makes_a_nullable_column() -> None:
    @ematix.table(schema="raw")
    class Nulls:
        plain: Text | None
        sized: String[9] | None
        number: Numeric[5, 1] | None
        optional: Optional[Text]  # noqa: UP045 - the old spelling is what is tested
        optional_sized: Optional[String[9]]  # noqa: UP045
        reversed_order: None | BigInt  # noqa: RUF036
        marked: Annotated[Text, nullable()]
        inside: Annotated[String[9] | None, lower(), trim()]
        required: Text

    found = columns_of(Nulls)
    assert [name for name, column in found.items() if not column.nullable] == ["required"]
    assert [repr(found[name].type) for name in ("sized", "number", "optional_sized", "inside")] == [
        "String[9]", "Numeric[5, 1]", "String[9]", "String[9]",
    ]  # fmt: skip


def test_quoted_annotations_mean_the_same_as_real_ones() -> None:
    @ematix.table(schema="raw")
    class Quoted:
        key: "Annotated[BigInt, pk()]"
        name: "String[40] | None"
        note: "Text"

    found = columns_of(Quoted)
    assert found["key"].primary_key
    assert found["name"].nullable
    assert repr(found["name"].type) == "String[40]"
    assert not found["note"].nullable


def test_a_module_with_postponed_annotations_declares_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("postponed")
    monkeypatch.setitem(sys.modules, "postponed", module)
    code = """
from __future__ import annotations
from ematix_flow import Annotated, BigInt, ManagedTable, Text, ematix, pk

@ematix.table(schema="raw")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None

class Orders(ManagedTable):
    __schema__ = "raw"
    order_id: Annotated[BigInt, pk()]
"""
    exec(compile(code, "postponed.py", "exec"), module.__dict__)
    assert [(c.name, c.nullable, c.primary_key) for c in module.Events.spec().columns] == [
        ("event_id", False, True), ("name", True, False),
    ]  # fmt: skip
    assert module.Orders.spec().primary_key == ("order_id",)


def test_markers_leave_normalizers_in_their_order() -> None:
    @ematix.table(schema="raw")
    class People:
        email: Annotated[String[256] | None, lower(), pk(), trim()]

    column = columns_of(People)["email"]
    assert column.primary_key
    assert [repr(item) for item in column.normalizers] == ["lower()", "trim()"]


def test_natural_keys_are_grouped_and_the_default_group_comes_first() -> None:
    @ematix.table(schema="raw")
    class People:
        tenant: Annotated[Text, natural_key("b"), pk()]
        email: Annotated[Text, natural_key()]
        number: Annotated[Text, natural_key("b")]

    assert People.spec().unique == (("email",), ("tenant", "number"))


def test_a_base_class_declares_a_table_by_annotations_and_by_column_attributes() -> None:
    class Mixed(ManagedTable):
        __schema__ = "raw"
        __tablename__ = "mixed_table"
        __merge_keys__ = ("code",)

        limit: ClassVar[int] = 3
        key = Column(BigInt(), primary_key=True)
        code: Text

    spec = Mixed.spec()
    assert spec.qualified == "raw.mixed_table"
    assert spec.merge_keys == ("code",)
    assert set(spec.column_names) == {"key", "code"}
    assert spec.primary_key == ("key",)


def test_an_abstract_base_shares_its_columns() -> None:
    class Audited(ManagedTable):
        __abstract__ = True
        loaded_by: Text | None

    class Orders(Audited):
        __schema__ = "raw"
        order_id: Annotated[BigInt, pk()]

    assert Orders.spec().column_names == ("loaded_by", "order_id")
    assert Orders.spec().name == "orders"


def test_plain_data_of_a_table_becomes_the_same_table_again() -> None:
    data = EveryType._to_spec()
    assert table_from(data).columns == EveryType.spec().columns
    assert table_from(json.dumps(data)).qualified == "analytics.every_type"
    assert table_from(EveryType) == table_from(EveryType.spec())
    assert len(EveryType._to_normalized_spec()["fingerprint"]) == 32


def _bare_string() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        name: String


def _bare_numeric() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        price: Numeric


def _python_type() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        number: int


def _two_types() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        either: BigInt | Text


def _no_columns() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        pass


def _unknown_word() -> Any:
    @ematix.table(schema="raw")
    class Bad:
        name: "Txt"  # noqa: F821 - the misspelling is what is tested


def _dataclass() -> Any:
    @ematix.table(schema="raw")
    @dataclasses.dataclass
    class Bad:
        name: Text


def _no_schema() -> Any:
    class Bad(ManagedTable):
        name: Text


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (_bare_string, r"Bad\.name: String needs a size"),
        (_bare_numeric, r"Bad\.price: Numeric needs a size"),
        (_python_type, r"Bad\.number: <class 'int'> is not a column type"),
        (_two_types, r"Bad\.either: .*BigInt \| .*Text is not a column type"),
        (_no_columns, "Bad has no columns"),
        (_unknown_word, r"Bad\.name: cannot read 'Txt'"),
        (_dataclass, "Bad is already a dataclass"),
        (_no_schema, "Bad names no schema"),
    ],
)
def test_a_table_that_cannot_be_is_a_type_error_with_the_users_line(declare: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said) as caught:
        declare()
    assert isinstance(caught.value, TableError)
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    lines = (declare.__code__.co_firstlineno, declare.__code__.co_firstlineno + 3)
    assert lines[0] < caught.value.where.line <= lines[1]


def test_a_decorator_on_something_that_is_no_class_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="goes on a class"):
        ematix.table(schema="raw")(lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0, -1, 2.5, True])
def test_a_string_needs_a_positive_whole_length(length: Any) -> None:
    with pytest.raises(ValueError, match="positive length"):
        String[length]


@pytest.mark.parametrize("size", [(0, 0), (5, 6), (39, 2), (5, -1)])
def test_a_numeric_needs_a_scale_inside_its_precision(size: Any) -> None:
    with pytest.raises(ValueError, match="precision"):
        Numeric[size]


def test_a_numeric_with_one_number_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="two numbers"):
        Numeric[12]  # type: ignore[misc]


def test_plain_data_of_an_unknown_kind_names_the_nearest() -> None:
    broken = {"schema": "raw", "name": "t", "columns": [{"name": "id", "type": {"kind": "bigint"}}]}
    with pytest.raises(TypeError, match="did you mean 'big_int'"):
        table_from(broken)
    with pytest.raises(TypeError, match="no 'columns'"):
        table_from({"schema": "raw", "name": "t"})
    with pytest.raises(TypeError, match="no JSON"):
        table_from("{")
    with pytest.raises(TypeError, match="is not a table"):
        table_from(3)  # type: ignore[arg-type]


def test_a_column_that_is_not_there_is_named_with_the_nearest() -> None:
    table = table_from({"schema": "raw", "name": "t", "columns": [{"name": "order_id", "type": {"kind": "big_int"}}]})
    with pytest.raises(MissingColumn, match=r"raw\.t has no column 'orderid'") as caught:
        [table.column(name) for name in ("orderid",)]
    assert caught.value.hint == "did you mean 'order_id'?"
