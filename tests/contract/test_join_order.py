"""Joins of lake tables are put in the cheapest order: shown before the run, equal in its rows, off by a setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, DeltaLocalConnection, ObjectStoreLocalConnection, Text, ematix, pk, register_connection
from ematix_flow.dataplane.spark_session import reorders_joins, session_settings
from ematix_flow.declare.connections import clear_registry
from ematix_flow.declare.strategy import Append
from ematix_flow.engine.session import session
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.sql.joins import reorder
from tests.contract import native
from tests.contract.lakes import Files, Lake
from tests.contract.loading import counts, declare

pytest_plugins = ("tests.contract.lake_fixtures",)
pytestmark = pytest.mark.skipif(native.is_native(), reason="the native engine orders joins itself")
JOINED = "SELECT s.id, n.name FROM {0}sales s, {0}shops p, {0}towns n WHERE s.shop = p.id AND p.town = n.id AND n.name = 'n3'"


@pytest.fixture(autouse=True)
def _as_if_large(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables of any size are looked at, and none is sent to every task."""
    monkeypatch.setattr(reorder, "LEAST_BYTES", 0)
    monkeypatch.setenv("EMATIX_FLOW_CACHE", str(tmp_path / "cache"))
    with session_settings(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
        yield


def filled(lake: Lake) -> Lake:
    """Sales of shops in towns."""
    rows = {
        "sales": [{"id": it, "shop": it % 100} for it in range(1000)],
        "shops": [{"id": it, "town": it % 10} for it in range(100)],
        "towns": [{"id": it, "name": f"n{it}"} for it in range(10)],
    }
    kinds: dict[str, dict[str, Any]] = {"sales": {"shop": BigInt}, "shops": {"town": BigInt}, "towns": {"name": Text}}
    for name, own in kinds.items():
        lake.load(declare({"id": Annotated[BigInt, pk()], **own}, schema="shop", name=name), Append(), rows[name])
    return lake


def reasons(lake: Lake, query: str) -> tuple[str, ...]:
    found: tuple[str, ...] = lake.backend.batch_source(lake.connection).plan(query, parallelism=2).joins
    return found


@pytest.mark.slow
def test_joins_of_lake_tables_are_ordered_by_their_statistics(lake: Lake, tmp_path: Path) -> None:
    query = JOINED.format("shop.")
    (reason,) = reasons(filled(lake), query)
    assert reason.startswith("p → n (~10) → s (~100): at most ~10 rows between joins, ~1,000 as written")
    rows = sorted(tuple(row.values()) for row in lake.query(query))
    assert rows == [(it, "n3") for it in range(1000) if it % 10 == 3]
    lake.load(declare({"id": BigInt, "town": BigInt}, schema="shop", name="shops"), Append(),
              [{"id": 100 + it, "town": 3} for it in range(4000)])  # fmt: skip
    assert reasons(lake, query) != (reason,)
    assert sorted(tuple(row.values()) for row in lake.query(query)) == rows


def test_a_setting_leaves_joins_as_they_are_written(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    query = JOINED.format("shop.")
    lake = filled(files("parquet"))
    try:
        monkeypatch.setenv("EMATIX_FLOW_REORDER_JOINS", "0")
        assert not reorders_joins(session.spark_session())
        assert reasons(lake, query) == ()
        monkeypatch.setenv("EMATIX_FLOW_REORDER_JOINS", "maybe")
        with pytest.raises(ConfigError, match="EMATIX_FLOW_REORDER_JOINS=maybe is not a choice"):
            session.spark_session()
    finally:
        monkeypatch.delenv("EMATIX_FLOW_REORDER_JOINS")
        session.spark_session()
    assert len(reasons(lake, query)) == 1


@pytest.fixture
def lakes(spark: Any, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    clear_registry()
    made = (
        DeltaLocalConnection("deltas", path=str(tmp_path / "deltas")),
        ObjectStoreLocalConnection("folders", path=str(tmp_path / "folders"), format="parquet"),
    )
    for connection in made:
        register_connection(connection)
    yield made
    clear_registry()


def test_a_statement_over_two_lakes_is_ordered_and_previewed(
    lakes: tuple[Any, Any], spark: Any, tmp_path: Path
) -> None:
    from ematix_flow.backends import delta, files

    deltas, folders = lakes
    filled(Lake(delta.backend, deltas, tmp_path / "deltas", spark))
    filled(Lake(files.backend, folders, tmp_path / "folders", spark))
    target = declare({"id": Annotated[BigInt, pk()], "name": Text}, schema="made", name="joined")
    query = JOINED.format("deltas.shop.").replace("deltas.shop.sales", "folders.shop.sales")
    with ExitStack() as open_until:
        open_until.callback(clear_registry)
        load = ematix.pipeline(
            target=target, target_connection=folders, source_connection=[deltas, folders], mode="truncate",
            name="joined_lakes",
        )(lambda: query)  # fmt: skip
        shown = load.preview().to_text()
        assert "  joins    p → n (~10) → s (~100): at most ~10 rows between joins, ~1,000 as written" in shown
        assert counts(load.sync())["inserted"] == 100
    found = sorted(Lake(files.backend, folders, tmp_path / "folders", spark).rows(target))
    assert found == [(it, "n3") for it in range(1000) if it % 10 == 3]
