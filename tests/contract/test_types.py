"""Every value of every column type arrives as it left: NULL, extremes, odd texts; what a system cannot hold is refused."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import Integer, ematix, pk
from ematix_flow.declare.types import NullableType
from ematix_flow.foundation.errors import BadValue
from tests.contract.conftest import Systems
from tests.contract.loading import declare, load
from tests.contract.odd_values import TYPES, differences, held_by, refused_by, rows_of, written_by
from tests.harness.base import Harness, canonical


def table_of(names: Any = tuple(TYPES)) -> Any:
    columns = {name: _nullable(TYPES[name][0]) for name in names}
    return declare({"n": Annotated[Integer, pk()], **columns})


def _nullable(column_type: Any) -> NullableType:
    return NullableType(column_type() if isinstance(column_type, type) else column_type)


def expected(table: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    types = {column.name: column.type for column in table.spec().columns}
    return [{name: canonical(value, types[name]) for name, value in row.items()} for row in rows]


@pytest.mark.core
@pytest.mark.offers("append")
def test_every_value_of_a_dataframe_arrives_as_it_is(harness: Harness) -> None:
    table, rows = table_of(), rows_of(held_by(harness.name))
    load(harness, table, rows, mode="append")
    assert differences(expected(table, rows), harness.rows(table.spec())) == []


@pytest.mark.offers("merge")
def test_every_value_equals_itself_when_it_comes_again(harness: Harness) -> None:
    table, rows = table_of(), rows_of(held_by(harness.name))
    load(harness, table, rows, mode="merge")
    again = load(harness, table, rows, mode="merge")
    assert (again.rows_unchanged, again.rows_updated, again.rows_inserted) == (len(rows), 0, 0)


@pytest.mark.core
def test_every_value_of_a_source_arrives_as_it_is(harness: Harness, systems: Systems) -> None:
    other = systems("postgres" if harness.name == "duckdb" else "duckdb")
    both = {name: _common(harness.name, other.name, name) for name in TYPES}
    source, target, rows = table_of(), table_of(), rows_of(both)
    harness.seed(source.spec(), rows)

    @ematix.pipeline(
        target=target, target_connection=other.connection, source_connection=harness.connection, mode="append",
        name=f"types_{target.__tablename__}",
    )  # fmt: skip
    def copy() -> str:
        return f"SELECT * FROM {harness.reference(source.spec())}"

    copy.sync()
    assert differences(expected(target, rows), other.rows(target.spec())) == []


def _common(one: str, other: str, name: str) -> list[Any]:
    held = held_by(other)[name]
    return [value for value in written_by(one)[name] if any(value is kept for kept in held)]


@pytest.mark.offers("append")
def test_what_a_system_cannot_hold_is_refused_and_nothing_is_loaded(harness: Harness) -> None:
    for name, values in refused_by(harness.name).items():
        for value in values:
            table = table_of([name])
            with pytest.raises(BadValue) as caught:
                load(harness, table, [{"n": 1, name: None}, {"n": 2, name: value}], mode="append")
            assert caught.value.hint
            assert harness.rows(table.spec()) == []
    assert set(refused_by(harness.name)) <= set(TYPES)
