"""Rows of the comparison with the original (docs/differences.md): plans and checks before a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Flow

from ematix_flow import pipeline

LOADS = """

from ematix_flow.normalize import filter_where, trim


@ematix.connection
class away:
    kind = "postgres"
    url = "postgres://ana:secret@127.0.0.1:1/shop"


@ematix.table(schema="main")
class Tidy:
    id: Annotated[BigInt, pk()]
    name: Annotated[Text, trim()]


def after(conn):
    pass


@ematix.pipeline(target=Tidy, target_connection="{connection}", mode="merge", transforms_pre=[filter_where("id > 1")],
                 transforms_post=["{sql}", after, ematix.transform_ref("tidy")])
def cleaned(conn):
    return "SELECT id, name FROM raw_people"
"""


@pytest.mark.parametrize("connection", ["away", "nowhere"])
def test_a_preview_needs_no_system_to_answer(
    flow: Flow, shop: Path, declare: Callable[[str], None], connection: str
) -> None:
    """gaps M1"""
    declare(LOADS.format(connection=connection, sql="DELETE FROM tidy"))
    plan = flow("preview", "cleaned", "--json").document
    assert "raw_people" in plan["source_sql"]
    assert plan["targets"][0]["exists"] is None
    assert plan["notes"][0].startswith("not asked: ")
    shown = flow("preview", "cleaned")
    assert shown.code == 0
    assert "not asked" in shown.out


def test_a_plan_shows_normalizers_pre_transforms_and_what_follows(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps M12, L4"""
    declare(LOADS.format(connection="shop", sql="DELETE FROM tidy WHERE id = 3"))
    plan = flow("preview", "cleaned", "--json").document
    for sql in (plan["source_sql"], flow("validate", "cleaned", "--json").document["source_sql"]):
        assert "trim" in sql.lower()
        assert "id > 1" in sql
    assert plan["transforms_post"] == [
        {"kind": "sql", "summary": "DELETE FROM tidy WHERE id = 3"},
        {"kind": "callable", "summary": "after"},
        {"kind": "transform_ref", "summary": "tidy"},
    ]
    found: Any = pipeline.preview("cleaned")
    assert isinstance(found.transforms_post, list)
    assert isinstance(pipeline.validate("cleaned").errors, list)


def test_validation_explains_the_sql_that_follows_a_load(
    flow: Flow, shop: Path, declare: Callable[[str], None]
) -> None:
    """gaps M2"""
    declare(LOADS.format(connection="shop", sql="DELETE FROM elsewhere"))
    told = flow("validate", "cleaned", "--json")
    assert told.code != 0
    assert "elsewhere" in told.document["errors"][0]
    assert "after is not checked" in " ".join(told.document["notes"])


def test_validation_knows_that_the_load_makes_its_table(flow: Flow, shop: Path, declare: Callable[[str], None]) -> None:
    """gaps M2"""
    declare(LOADS.format(connection="shop", sql="DELETE FROM tidy"))
    told = flow("validate", "cleaned", "--json")
    assert (told.code, told.document["errors"]) == (0, [])
    flow("run", "cleaned")
    assert flow("validate", "cleaned").code == 0
