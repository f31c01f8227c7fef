"""A backend of another package (tests/outside_backend) as the target of a stream: checked, rewound, with dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import Target
from ematix_flow.backends import catalog
from ematix_flow.cli.main import main
from ematix_flow.declare.connections.entries import from_fields
from ematix_flow.declare.connections.outside import outside_backends
from ematix_flow.foundation.errors import PlanError
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.admin import checkpoint_check, inspection, rewind
from ematix_flow.streaming.admin.check_findings import DAMAGED, OK
from ematix_flow.streaming.admin.checkpoint_check import check_all
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.dlq.locations import dead_letter_connection
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.streams.operated import declared, run, watched

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
OUTSIDE = Path(__file__).parents[1] / "outside_backend"
ROWS = [{"id": 1, "amount": "10"}, {"id": 2, "amount": "20"}, {"id": 3, "amount": "thirty"}]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A connection of the package, which is on the path as if it were installed."""
    known = outside_backends, catalog.all_backends, catalog.backend_of_kind
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(OUTSIDE))
        for one in known:
            one.cache_clear()
        yield from_fields("shop", {"kind": "outside", "file": str(tmp_path / "shop.out")})
    for one in known:
        one.cache_clear()


def spec_of(shop: Any, source: Any, sql: str = "CAST(amount AS INT)") -> Any:
    targets = [
        Target(connection=shop, table=("main", "raw_events")),
        Target(connection=shop, table=("main", "events"), mode="merge", keys=["id"], primary_key=["id"]),
    ]
    return declared(
        name="events", source=source, source_query="events", targets=targets, transform_on_error="dlq",
        transform_sql=f"SELECT id, {sql} AS amount FROM source",
    )  # fmt: skip


def rows(shop: Any, table: str) -> list[tuple[int, int]]:
    client = catalog.backend_for(shop).client
    assert client is not None
    with closing(client(shop)) as session:
        return session.query(f"SELECT id, amount FROM main.{table} ORDER BY id")[1]


def findings(spec: Any) -> dict[str, str]:
    return {item.about: item.status for item in check_all(inspection.inspect_checkpoint(spec))}


def test_it_is_checked_repaired_rewound_and_keeps_the_dead_letters(
    shop: Any, tmp_path: Path, run_log: SqliteRunLog
) -> None:
    spec = spec_of(shop, watched(tmp_path, {"one.jsonl": (ROWS, 1_700_000_000)}))
    run(spec, run_log)
    folder = CheckpointFolder.of(spec)
    assert rows(shop, "raw_events") == rows(shop, "events") == [(1, 10), (2, 20)]

    found = findings(spec)
    assert {"token of main.raw_events", "token of main.events", "dead letters"} <= set(found)
    assert set(found.values()) == {OK}, found
    known = folder.prepare()
    (folder.root / "flow.json").unlink()
    assert findings(spec)["generation"] == DAMAGED
    checkpoint_check.repair_checkpoint(spec, confirmed=True, run_log=run_log)
    assert folder.prepare() == known

    assert dead_letter_connection(spec, folder).kind == "outside"
    (letter,) = service.list_letters(spec, bodies=True)
    assert (letter.stage, json.loads(letter.payload or b"{}")["id"]) == ("transform", 3)
    healed = spec_of(shop, spec.sources[0].connection, sql="coalesce(try_cast(amount AS INT), -1)")
    report = service.replay_letters(healed, LetterSelection(), run_log=run_log)
    assert (report.succeeded, service.list_letters(spec)) == (1, [])
    assert rows(shop, "raw_events") == rows(shop, "events") == [(1, 10), (2, 20), (3, -1)]

    earliest = rewind.RewindTarget.of("earliest")
    with pytest.raises(PlanError, match=r"main.raw_events is appended to, and gets the rows twice"):
        rewind.rewind_stream(spec, earliest, confirmed=False, run_log=run_log)
    rewind.rewind_stream(spec, earliest, confirmed=True, run_log=run_log)
    run(healed, run_log)
    assert rows(shop, "events") == [(1, 10), (2, 20), (3, -1)]
    assert [number for number, _ in rows(shop, "raw_events")] == [1, 1, 2, 2, 3, 3]
    assert set(findings(spec).values()) == {OK}


def test_the_commands_know_it(shop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backends", "--json"]) == 0
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert listed["outside"]["kinds"] == ["outside"]
