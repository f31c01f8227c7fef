"""The query around a source's query, and the transforms in it."""

from __future__ import annotations

from typing import Annotated

import pytest

from ematix_flow import normalize, transforms
from ematix_flow.declare.table import ManagedTable
from ematix_flow.declare.types import BigInt, Text
from ematix_flow.normalize import apply_normalization, trim
from ematix_flow.sql.expressions import CannotRender, normalized_select
from ematix_flow.transforms import deduplicate_by, filter_where, limit, sample_pct


class Events(ManagedTable):
    __schema__ = "analytics"
    event_id: BigInt
    name: Annotated[Text, trim()]


class Plain(ManagedTable):
    __schema__ = "analytics"
    event_id: BigInt


def test_the_documented_and_the_shipped_form_of_deduplicate_by_are_the_same() -> None:
    documented = deduplicate_by(keys=("event_id",), order_by="received_at desc")
    assert documented == deduplicate_by("event_id", order_by="received_at desc")
    assert repr(documented) == "deduplicate_by('event_id', order_by='received_at desc')"
    assert deduplicate_by(keys="event_id") == deduplicate_by("event_id")
    assert transforms.deduplicate_by is normalize.deduplicate_by


@pytest.mark.parametrize(
    "make", [deduplicate_by, lambda: limit(-1), lambda: sample_pct(1.5), lambda: filter_where(" ")]
)
def test_transforms_that_cannot_be_right_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"deduplicate_by|limit|sample_pct|filter_where"):
        make()  # type: ignore[operator]


def test_steps_are_named_in_order() -> None:
    select = apply_normalization(Events, "SELECT * FROM raw.events;", [filter_where("name <> ''"), limit(3)])
    assert select == (
        "WITH _src_user AS (\nSELECT * FROM raw.events\n),\n"
        '_src_normalized AS (\nSELECT "event_id", TRIM(CAST("name" AS TEXT)) AS "name"\nFROM _src_user\n),\n'
        "_src_pre_1 AS (\nSELECT * FROM _src_normalized WHERE name <> ''\n),\n"
        "_src_pre_2 AS (\nSELECT * FROM _src_pre_1 LIMIT 3\n)\n"
        'SELECT "event_id", "name" FROM _src_pre_2'
    )


def test_a_source_with_nothing_to_do_stays_as_it_is() -> None:
    assert apply_normalization(Plain, "SELECT 1 AS event_id;") == "SELECT 1 AS event_id"


def test_without_normalizers_all_columns_of_the_source_pass() -> None:
    select = apply_normalization(Plain, "SELECT * FROM t", [deduplicate_by("event_id", order_by="at desc")])
    assert 'SELECT DISTINCT ON ("event_id") * FROM _src_user ORDER BY "event_id", at DESC NULLS FIRST' in select
    assert select.endswith("SELECT * FROM _src_pre_1")


def test_something_else_among_the_transforms_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="does not take 'limit 5'"):
        apply_normalization(Events, "SELECT 1", ["limit 5"])


def test_a_database_that_cannot_leave_out_a_column_needs_the_names() -> None:
    with pytest.raises(CannotRender, match="have to be named"):
        normalized_select([], "SELECT 1 AS a", pre_transforms=[deduplicate_by("a")], dialect="sqlite")
    assert "EXCEPT (_flow_rank_1)" in normalized_select(
        [], "SELECT 1 AS a", pre_transforms=[deduplicate_by("a")], dialect="spark"
    )


def test_an_order_that_is_none_is_refused() -> None:
    for order in ("a; DROP TABLE b", "a LIMIT 1", "("):
        with pytest.raises(ValueError, match="not an SQL expression"):
            normalized_select(
                [("a", [])], "SELECT 1", pre_transforms=[deduplicate_by("a", order_by=order)], dialect="postgres"
            )


def test_null_order_is_written_out_for_every_database() -> None:
    def ordered(order: str, dialect: str) -> str:
        transform = deduplicate_by("a", order_by=order)
        return normalized_select([("a", [])], "SELECT 1 AS a", pre_transforms=[transform], dialect=dialect)

    assert "ORDER BY b DESC NULLS FIRST, c ASC NULLS LAST)" in ordered("b desc, c", "spark")
    assert "ORDER BY b DESC NULLS LAST)" in ordered("b desc nulls last", "duckdb")
    assert "ORDER BY b IS NULL DESC, b DESC)" in ordered("b desc", "mysql")
