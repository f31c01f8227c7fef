"""What is written to Spark for the values of changes: short for every column, whatever its type."""

from __future__ import annotations

import pytest

from ematix_flow.declare.types import BigInt, Bytes, Column, ColumnType, Date, Numeric, Timestamp
from ematix_flow.streaming.cdc.values import UNAVAILABLE, convert_value


@pytest.mark.parametrize("kind", [Numeric(38, 4), Timestamp(), Date(), Bytes(), BigInt()], ids=lambda kind: kind.kind)
def test_the_sql_of_a_column_is_short(kind: ColumnType) -> None:
    """One of 22,000 characters for each of forty decimals took Spark a minute."""
    assert len(convert_value("`price`", "try_element_at(kinds, 'price')", Column(kind, True, False, "price"))) < 2000


def test_a_placeholder_is_known_in_every_form() -> None:
    said = "__debezium_unavailable_value"
    assert {said, f'["{said}"]', "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", said.encode().hex()} <= set(UNAVAILABLE)
