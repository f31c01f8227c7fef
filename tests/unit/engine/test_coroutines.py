"""Functions of pipelines that are coroutines, called where a loop runs and where none does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import Annotated, BigInt, SQLiteConnection, ematix, pk
from ematix_flow.declare import registry


@pytest.fixture(autouse=True)
def _nothing_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("EMATIX_FLOW_RUN_LOG_PATH", str(tmp_path / "runs.db"))
    registry.clear()
    yield
    registry.clear()


@ematix.table(schema="main")
class Numbers:
    n: Annotated[BigInt, pk()]


def test_a_coroutine_runs_also_where_a_loop_runs_already_as_in_a_notebook(tmp_path: Path) -> None:
    shop = SQLiteConnection("shop", path=str(tmp_path / "shop.db"))

    @ematix.pipeline(target=Numbers, target_connection=shop, mode="append")
    async def counted() -> dict[str, int]:
        await asyncio.sleep(0)
        return {"rows": 3}

    async def notebook() -> Any:
        return counted.sync().value

    assert counted.sync().value == {"rows": 3}
    assert asyncio.run(notebook()) == {"rows": 3}
