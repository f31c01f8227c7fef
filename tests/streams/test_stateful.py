"""Windows, sessions and joins by the runner: what comes out when, what is late, and what a stream remembers between runs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import Aggregation, Join, ObjectStoreLocalConnection, Source, StateStore, Watermark, Window
from ematix_flow.foundation.errors import FlowError, PlanError
from ematix_flow.run_log.schedule import Action
from ematix_flow.run_log.sqlite import SqliteRunLog
from ematix_flow.streaming.admin.status import stream_status
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from tests.harness.arrivals import put_whole
from tests.streams.operated import declared, eventually, rows, run, running, shop

pytestmark = pytest.mark.usefixtures("every_jar", "homes")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=timezone.utc)
COUNT = Aggregation(agg="count", as_="n")
NEVER = Watermark(source_idleness_ms=10**9)
"""Silence closes nothing."""


def at(seconds: float) -> str:
    """A moment after noon."""
    return (NOON + timedelta(seconds=seconds)).isoformat()


class Incoming:
    """A folder of JSON lines that a stream reads."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder / "incoming", 0
        self.connection = ObjectStoreLocalConnection("incoming", path=str(self._folder), format="json_lines")

    def arrive(self, given: Sequence[Mapping[str, Any]], name: str = "events") -> None:
        """One more file."""
        place = self._folder / name
        place.mkdir(parents=True, exist_ok=True)
        self._files += 1
        put_whole(place / f"{self._files}.jsonl", "".join(json.dumps(row) + "\n" for row in given))


@pytest.fixture
def incoming(tmp_path: Path) -> Incoming:
    """Where rows come from."""
    return Incoming(tmp_path)


def events(*given: tuple[str, float]) -> list[dict[str, Any]]:
    """A user and a moment each."""
    return [{"user_id": user, "_event_ts": at(seconds)} for user, seconds in given]


def windowed(incoming: Incoming, folder: Path, **said: Any) -> Any:
    """Events of a user per minute."""
    options = {
        "name": "per_minute", "source": incoming.connection, "source_query": "events", "target": shop(folder),
        "target_table": ("main", "per_minute"), "watermark": NEVER,
        "window": Window(kind="tumbling", duration_ms=60_000, group_by=("user_id",), aggregations=[COUNT]), **said,
    }  # fmt: skip
    return declared(**options)


COUNTED = "SELECT user_id, strftime('%M', window_start), n FROM per_minute"


def test_a_window_comes_out_once_when_the_watermark_has_passed_it(incoming: Incoming, tmp_path: Path) -> None:
    spec = windowed(incoming, tmp_path)
    incoming.arrive(events(("ana", 1), ("ana", 2), ("bob", 30)))
    run(spec)
    assert not rows(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'per_minute'")
    incoming.arrive(events(("ana", 59), ("ana", 61)))
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 3), ("bob", "00", 1)]
    incoming.arrive(events(("bob", 130)))
    run(spec)
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 3), ("ana", "01", 1), ("bob", "00", 1)]


@pytest.mark.full
def test_late_rows_are_dropped_and_counted(incoming: Incoming, tmp_path: Path, run_log: SqliteRunLog) -> None:
    spec = windowed(incoming, tmp_path)
    for given in (events(("ana", 1), ("ana", 70)), events(("ana", 5), ("ana", 130))):
        incoming.arrive(given)
        run(spec, run_log)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1), ("ana", "01", 1)]
    last = run_log.list_runs(pipeline="per_minute", limit=1)[0][0]
    assert last.extras["late_rows_dropped_total"] == 1
    assert last.extras["windows_emitted_total"] == 1
    assert last.extras["state_rows"] > 0
    assert last.extras["state_bytes"] > 0


@pytest.mark.full
def test_late_rows_are_dead_letters_where_they_shall_be(incoming: Incoming, tmp_path: Path) -> None:
    window = Window(kind="tumbling", duration_ms=60_000, group_by=("user_id",), aggregations=[COUNT], late_data="dlq")
    spec = windowed(incoming, tmp_path, window=window, transform_on_error="dlq")
    for given in (events(("ana", 1), ("ana", 70)), events(("ana", 5), ("ana", 130))):
        incoming.arrive(given)
        run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1), ("ana", "01", 1)]
    ((stage, payload),) = rows(tmp_path, "SELECT stage, payload FROM ematix_flow_dlq_records")
    assert (stage, json.loads(payload)["_event_ts"]) == ("late_data", at(5))


@pytest.mark.full
def test_a_late_row_opens_its_window_again(incoming: Incoming, tmp_path: Path) -> None:
    window = Window(
        kind="tumbling", duration_ms=60_000, group_by=("user_id",), aggregations=[COUNT], late_data="reopen",
        allowed_lateness_ms=60_000,
    )  # fmt: skip
    spec = windowed(incoming, tmp_path, window=window, mode="merge", keys=["user_id", "window_start"])
    for given in (events(("ana", 1), ("bob", 2), ("ana", 70)), events(("ana", 5)), events(("bob", 190), ("ana", 6))):
        incoming.arrive(given)
        run(spec)
    assert rows(tmp_path, COUNTED)[:2] == [("ana", "00", 3), ("ana", "01", 1)]
    incoming.arrive(events(("ana", 7)))
    run(spec)
    assert rows(tmp_path, COUNTED)[0] == ("ana", "00", 3)


@pytest.mark.full
def test_silence_closes_the_last_window(incoming: Incoming, tmp_path: Path, run_log: SqliteRunLog) -> None:
    spec = windowed(incoming, tmp_path, watermark=Watermark(source_idleness_ms=500),
                    window=Window(kind="tumbling", duration_ms=1_000, group_by=("user_id",), aggregations=[COUNT]))  # fmt: skip
    incoming.arrive(events(("ana", 1.0), ("ana", 1.2)))
    with running(spec, run_log) as figures:
        eventually(lambda: figures().get("windows_emitted_total") == 1)
        run_log.enqueue(Action("cancel", "per_minute", stream_status(run_log, "per_minute").run_id, by="a test"))
    assert rows(tmp_path, COUNTED) == [("ana", "00", 2)]


@pytest.mark.full
def test_a_start_after_a_long_silence_closes_what_is_over(incoming: Incoming, tmp_path: Path) -> None:
    spec = windowed(incoming, tmp_path, watermark=Watermark(source_idleness_ms=300),
                    window=Window(kind="tumbling", duration_ms=1_000, group_by=("user_id",), aggregations=[COUNT]))  # fmt: skip
    incoming.arrive(events(("ana", 1.0)))
    run(spec)
    time.sleep(1.5)
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1)]


@pytest.mark.full
def test_a_row_ahead_of_the_clock_makes_no_other_late(incoming: Incoming, tmp_path: Path) -> None:
    spec = windowed(incoming, tmp_path)
    later = (datetime.now(timezone.utc) + timedelta(days=400)).isoformat()
    incoming.arrive([*events(("ana", 1)), {"user_id": "eve", "_event_ts": later}])
    run(spec)
    incoming.arrive(events(("ana", 2), ("bob", 61)))
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 2)]


@pytest.mark.full
def test_a_row_without_a_time_is_a_bad_row(incoming: Incoming, tmp_path: Path) -> None:
    told = [("ana", at(1)), ("ana", at(61)), ("bob", None)]
    incoming.arrive([{"user_id": user, "happened": moment} for user, moment in told])
    window = Window("tumbling", [COUNT], 60_000, group_by=("user_id",), event_time_column="happened")
    said = {"transform_sql": "SELECT user_id, happened FROM source", "window": window}
    with pytest.raises(FlowError, match="no event time") as refused:
        run(windowed(incoming, tmp_path, name="strict", **said))
    assert "transform_on_error" in (refused.value.hint or "")
    run(windowed(incoming, tmp_path, transform_on_error="dlq", **said))
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1)]
    assert rows(tmp_path, "SELECT stage, error LIKE '%no point in time%' FROM ematix_flow_dlq_records") == [
        ("transform", 1)
    ]


@pytest.mark.full
def test_an_event_time_that_is_not_there_is_named(incoming: Incoming, tmp_path: Path) -> None:
    incoming.arrive([{"user_id": "ana", "moment": at(1)}])
    window = Window("tumbling", [COUNT], 60_000, event_time_column="momemt")
    with pytest.raises(FlowError, match="'momemt' is not among the columns") as refused:
        run(windowed(incoming, tmp_path, window=window))
    assert "moment" in (refused.value.hint or "")


@pytest.mark.full
def test_a_window_with_too_many_groups_ends_the_stream(incoming: Incoming, tmp_path: Path) -> None:
    window = Window("tumbling", [COUNT], 60_000, group_by=("user_id",), max_groups_per_window=3)
    incoming.arrive(events(*((f"u{number}", number) for number in range(4))))
    with pytest.raises(FlowError, match="max_groups_per_window"):
        run(windowed(incoming, tmp_path, window=window))


@pytest.mark.full
def test_the_state_of_another_window_is_refused(incoming: Incoming, tmp_path: Path) -> None:
    incoming.arrive(events(("ana", 1)))
    run(windowed(incoming, tmp_path))
    incoming.arrive(events(("ana", 2)))
    with pytest.raises(PlanError, match="made by another window"):
        run(windowed(incoming, tmp_path, window=Window("tumbling", [COUNT], 30_000, group_by=("user_id",))))


@pytest.mark.full
def test_a_state_that_is_gone_is_missed(incoming: Incoming, tmp_path: Path) -> None:
    import shutil

    spec = windowed(incoming, tmp_path)
    incoming.arrive(events(("ana", 1)))
    run(spec)
    shutil.rmtree(Path(str(CheckpointFolder.of(spec).root)) / "state")
    incoming.arrive(events(("ana", 2)))
    with pytest.raises(PlanError, match="the state of per_minute is gone"):
        run(spec)


@pytest.mark.full
def test_a_state_that_is_older_than_its_checkpoint_is_refused(incoming: Incoming, tmp_path: Path) -> None:
    spec = windowed(incoming, tmp_path)
    note = Path(str(CheckpointFolder.of(spec).root)) / "state" / "kept.json"
    for number in range(2):
        incoming.arrive(events(("ana", number)))
        run(spec)
        if number == 0:
            older = note.read_text()
    note.write_text(older)
    incoming.arrive(events(("ana", 2)))
    with pytest.raises(PlanError, match="is that of batch 0, and its checkpoint is at 2"):
        run(spec)


@pytest.mark.full
def test_a_field_that_comes_later_becomes_part_of_the_window(incoming: Incoming, tmp_path: Path) -> None:
    """The columns of the messages grow while windows are open, and the types of their groups may, too."""
    window = Window("tumbling", [COUNT, Aggregation("sum", "total", "amount")], 60_000, group_by=("user_id",))
    spec = windowed(incoming, tmp_path, window=window)
    incoming.arrive([{"user_id": 1, "amount": 2, "_event_ts": at(1)}])
    run(spec)
    incoming.arrive([{"user_id": 1, "amount": 2.5, "more": "x", "_event_ts": at(2)}])
    run(spec)
    incoming.arrive([{"user_id": 2, "amount": 1, "_event_ts": at(61)}])
    run(spec)
    assert rows(tmp_path, "SELECT user_id, n, total FROM per_minute") == [(1, 2, 4.5)]


@pytest.mark.full
def test_many_micro_batches_are_one_part_after_a_while(incoming: Incoming, tmp_path: Path) -> None:
    """State is appended to, and compacted; nothing changes by it."""
    from ematix_flow.streaming.state.local_state import state_backend_of

    spec = windowed(incoming, tmp_path)
    for number in range(11):
        incoming.arrive(events(("ana", number)))
        run(spec)
    folder = CheckpointFolder.of(spec)
    kept = state_backend_of(spec, folder, str(folder.read_metadata()["generation"])).manifest()
    assert kept is not None
    assert len(kept.parts) < 8
    incoming.arrive(events(("bob", 61)))
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 11)]


SESSION = Window(
    kind="session", gap_ms=10_000, max_session_duration_ms=60_000, group_by=("user_id",),
    aggregations=[COUNT, Aggregation("first", "entry", "page"), Aggregation("last", "exit", "page")],
)  # fmt: skip


def visits(*given: tuple[str, float, str]) -> list[dict[str, Any]]:
    """A user, a moment and a page each."""
    return [{"user_id": user, "page": page, "_event_ts": at(seconds)} for user, seconds, page in given]


@pytest.mark.parametrize("store", ["postgres", pytest.param("in_memory", marks=pytest.mark.full("for tests only"))])
def test_sessions_go_on_from_batch_to_batch(
    incoming: Incoming, tmp_path: Path, request: pytest.FixtureRequest, store: str
) -> None:
    url = request.getfixturevalue("fresh_postgres") if store == "postgres" else None
    spec = windowed(incoming, tmp_path, window=SESSION, state_store=StateStore(kind=store, url=url))
    incoming.arrive(visits(("ana", 5, "/b"), ("ana", 1, "/a"), ("bob", 2, "/b")))
    if store == "in_memory":
        incoming.arrive(visits(("ana", 12, "/c"), ("bob", 30, "/z")))
        incoming.arrive(visits(("bob", 41, "/end")))
        run(spec)
    else:
        run(spec)
        incoming.arrive(visits(("ana", 12, "/c"), ("bob", 30, "/z")))
        run(spec)
        incoming.arrive(visits(("bob", 41, "/end")))
        run(spec)
    told = "SELECT user_id, n, entry, exit, strftime('%S', window_start), strftime('%S', window_end) FROM per_minute"
    assert rows(tmp_path, told) == [
        ("ana", 3, "/a", "/c", "01", "22"), ("bob", 1, "/b", "/b", "02", "12"), ("bob", 1, "/z", "/z", "30", "40"),
    ]  # fmt: skip
    assert len({one for (one,) in rows(tmp_path, "SELECT session_id FROM per_minute")}) == 3
    if url is not None:
        import psycopg

        with closing(psycopg.connect(url)) as client:
            found = client.execute("SELECT DISTINCT pipeline_name FROM ematix_streaming_offsets").fetchall()
        assert any("per_minute" in name for (name,) in found)


def joined(incoming: Incoming, folder: Path, url: str, **said: Any) -> Any:
    """Orders and their payments."""
    join = Join(
        "orders", "payments", ("order_id",), ("order_id",), time_window_ms=60_000, kind=said.pop("kind", "inner")
    )
    return declared(
        name="paid", sources=[Source(incoming.connection, "orders"), Source(incoming.connection, "payments")],
        target=shop(folder), target_table=("main", "paid"), join=join, watermark=NEVER,
        state_store=StateStore(kind="postgres", url=url), **said,
    )  # fmt: skip


def order(number: int, seconds: float) -> dict[str, Any]:
    return {"order_id": number, "customer": f"c{number}", "_event_ts": at(seconds)}


def payment(number: int, seconds: float) -> dict[str, Any]:
    return {"order_id": number, "amount": number * 10, "_event_ts": at(seconds)}


@pytest.mark.full
def test_two_sources_are_joined_as_their_rows_come(incoming: Incoming, tmp_path: Path, fresh_postgres: str) -> None:
    spec = joined(incoming, tmp_path, fresh_postgres)
    incoming.arrive([order(1, 1), order(2, 2)], "orders")
    incoming.arrive([payment(1, 30)], "payments")
    run(spec)
    told = "SELECT left_order_id, left_customer, right_amount FROM paid"
    assert rows(tmp_path, told) == [(1, "c1", 10)]
    incoming.arrive([payment(2, 50), payment(3, 55)], "payments")
    run(spec)
    incoming.arrive([order(3, 10)], "orders")
    run(spec)
    run(spec)
    assert rows(tmp_path, told) == [(1, "c1", 10), (2, "c2", 20), (3, "c3", 30)]


@pytest.mark.full
def test_an_outer_join_emits_rows_without_a_partner(incoming: Incoming, tmp_path: Path, fresh_postgres: str) -> None:
    spec = joined(incoming, tmp_path, fresh_postgres, kind="left_outer")
    incoming.arrive([order(1, 1), order(2, 2)], "orders")
    incoming.arrive([], "payments")
    run(spec)
    incoming.arrive([payment(1, 30)], "payments")
    run(spec)
    incoming.arrive([order(9, 200)], "orders")
    incoming.arrive([payment(8, 200)], "payments")
    run(spec)
    told = "SELECT left_order_id, right_amount FROM paid ORDER BY 1"
    assert rows(tmp_path, told) == [(1, 10), (2, None)]


@pytest.mark.full
def test_the_doctor_compares_state_and_checkpoint(incoming: Incoming, tmp_path: Path) -> None:
    spec = windowed(incoming, tmp_path)
    incoming.arrive(events(("ana", 1)))
    run(spec)
    from ematix_flow.streaming.admin.checkpoint_check import check_all
    from ematix_flow.streaming.admin.inspection import inspect_checkpoint

    (found,) = (one for one in check_all(inspect_checkpoint(spec)) if one.about == "state")
    assert (found.status, "batch 0" in found.says) == ("ok", True)
    (folder := Path(str(CheckpointFolder.of(spec).root)) / "state" / "kept.json").unlink()
    (found,) = (one for one in check_all(inspect_checkpoint(spec)) if one.about == "state")
    assert (found.status, folder.exists()) == ("damaged", False)


@pytest.mark.full
def test_a_rewind_begins_with_an_empty_state(incoming: Incoming, tmp_path: Path, run_log: SqliteRunLog) -> None:
    from ematix_flow.streaming.admin.rewind import RewindTarget, rewind_stream

    spec = windowed(incoming, tmp_path, mode="merge", keys=["user_id", "window_start"])
    incoming.arrive(events(("ana", 1), ("bob", 61)))
    run(spec)
    rewind_stream(spec, RewindTarget.of("earliest"), confirmed=True, run_log=run_log)
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1)]
    incoming.arrive(events(("ana", 130)))
    run(spec)
    assert rows(tmp_path, COUNTED) == [("ana", "00", 1), ("bob", "01", 1)]


@pytest.mark.full
def test_letters_of_a_window_cannot_be_replayed(incoming: Incoming, tmp_path: Path) -> None:
    from ematix_flow.streaming.dlq.dead_letter import LetterSelection
    from ematix_flow.streaming.dlq.replay import replay_dead_letters

    with pytest.raises(FlowError, match="cannot be put into by hand"):
        replay_dead_letters(windowed(incoming, tmp_path, transform_on_error="dlq"), LetterSelection())
