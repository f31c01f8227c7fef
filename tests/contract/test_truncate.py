"""truncate: the table holds the last load and nothing else; a load that fails leaves it as it was."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, String, pk
from ematix_flow.foundation.errors import NullViolation, TextTooLong
from tests.contract.loading import columns, counts, declare, load
from tests.harness.base import Harness

pytestmark = [pytest.mark.offers("truncate"), pytest.mark.proves("{backend}: truncate")]


def small() -> Any:
    return declare({"id": Annotated[BigInt, pk()], "name": String[5]})


@pytest.mark.core
def test_truncate_replaces_every_row(harness: Harness) -> None:
    table = small()
    load(harness, table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], mode="truncate")
    result = load(harness, table, [{"id": 2, "name": "c"}], mode="truncate")
    assert counts(result) == {"inserted": 1, "deleted": 2}
    assert columns(harness.rows(table.spec()), ("id", "name")) == [(2, "c")]


def test_an_empty_source_empties_the_table(harness: Harness) -> None:
    table = small()
    load(harness, table, [{"id": 1, "name": "a"}], mode="truncate")
    load(harness, table, [], mode="truncate")
    assert harness.rows(table.spec()) == []


@pytest.mark.parametrize(
    ("bad", "error"), [({"id": 2, "name": None}, NullViolation), ({"id": 2, "name": "toolong"}, TextTooLong)]
)
def test_rows_that_break_the_declaration_leave_the_old_ones(harness: Harness, bad: Any, error: type[Exception]) -> None:
    table = small()
    load(harness, table, [{"id": 1, "name": "a"}], mode="truncate")
    with pytest.raises(error, match=r"1 row.*name.*nothing was loaded"):
        load(harness, table, [{"id": 1, "name": "z"}, bad], mode="truncate")
    assert columns(harness.rows(table.spec()), ("id", "name")) == [(1, "a")]
