"""Dead letters and targets of a micro-batch that is done again, caught up with, or counted."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import BigInt, ObjectStoreLocalConnection, SQLiteConnection, Target, ematix
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import FlowError, LeaseLost
from ematix_flow.storage.paths import STATE_FOLDER
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.runtime.batch_barrier import BatchBarrier
from ematix_flow.streaming.runtime.opening import open_stream
from tests.harness.arrivals import put_whole
from tests.streams.conftest import JARS
from tests.streams.operated import declared, rows, run, shop

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
ALL = LetterSelection()
FIRST = "SELECT n, CAST(10 / d AS BIGINT) AS v FROM source"
SECOND = "SELECT n, CAST(10 / (d - 5) AS BIGINT) AS v FROM source"
HEALED = "SELECT n, CAST(try_divide(10, d) AS BIGINT) AS v FROM source"


@ematix.table(schema="main", name="strict")
class Strict:
    n: BigInt
    v: BigInt


@ematix.table(schema="main", name="stricter")
class Stricter:
    n: BigInt
    v: BigInt


class Place:
    """A folder of files, a database, and a lake that can be staged to, and publishes nothing until `blocked` is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in" / "n").mkdir(parents=True)
        self.source = ObjectStoreLocalConnection("files", path=str(folder / "in"), format="json_lines")
        self.blocked = folder / "lake" / STATE_FOLDER / "locks"
        self.blocked.parent.mkdir(parents=True)
        self.blocked.write_text("not a folder")
        lake = ObjectStoreLocalConnection("lake", path=str(folder / "lake"), format="csv")
        self.lake = Target(connection=lake, prefix="raw/n")
        self.table = Target(connection=shop(folder), table=("main", "numbers"))

    def put(self, name: str, *rows: Any) -> None:
        put_whole(self.folder / "in" / "n" / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def spec(self, sql: str | None, *targets: Target, **more: Any) -> Any:
        return declared(
            name="numbers", source=self.source, source_query="n", targets=list(targets) or [self.table],
            transform_sql=sql, transform_on_error="dlq", **more,
        )  # fmt: skip

    def run(self, sql: str | None, *targets: Target, **more: Any) -> Any:
        return run(self.spec(sql, *targets, **more))

    def in_lake(self) -> list[int]:
        files = (self.folder / "lake" / "raw").rglob("*.csv")
        return sorted(int(line.split(",")[0]) for file in files for line in file.read_text().splitlines()[1:])

    def letters(self) -> list[tuple[int, str | None, str, int]]:
        found = rows(self.folder, "SELECT payload, target, status, batch FROM ematix_flow_dlq_records")
        return sorted((json.loads(payload)["n"], *rest) for payload, *rest in found)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def n(folder: Path, table: str = "numbers") -> list[int]:
    return [row[0] for row in rows(folder, f"SELECT n FROM {table}")]


@pytest.mark.proves("a table of dead letters has each of them once")
@pytest.mark.full
def test_a_micro_batch_that_no_target_has_gets_the_letters_of_its_last_try(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": 0}, {"n": 3, "d": 5}, {"n": 4, "d": None})
    targets = (place.lake, place.table)
    with pytest.raises(FlowError, match="locks"):
        place.run(FIRST, *targets)
    assert place.letters() == [(2, None, "pending", 0)]
    assert (
        service.replay_letters(place.spec(HEALED, *targets), ALL).taken == 0
    )  # it may be good when the batch comes again
    place.blocked.unlink()
    outcome = place.run(SECOND, *targets)
    assert outcome.total_rows == 4
    assert (n(place.folder), place.in_lake()) == ([1, 2, 4], [1, 2, 4])
    assert place.letters() == [(3, None, "pending", 0)]
    assert service.replay_letters(place.spec(HEALED, *targets), ALL).succeeded == 1
    assert (n(place.folder), place.in_lake(), place.letters()) == ([1, 2, 3, 4], [1, 2, 3, 4], [])


@pytest.mark.full
def test_what_a_person_parked_stays_parked_when_its_micro_batch_comes_again(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": 0}, {"n": 3, "d": 0})
    with pytest.raises(FlowError, match="locks"):
        place.run(FIRST, place.lake, place.table)
    spec = place.spec(FIRST, place.lake, place.table)
    one = next(item for item in service.list_letters(spec, bodies=True) if json.loads(item.payload or b"")["n"] == 2)
    service.park_letters(spec, LetterSelection(ids=(one.id,)))
    place.blocked.unlink()
    place.run(FIRST, place.lake, place.table)
    assert place.letters() == [(2, None, "parked", 0), (3, None, "pending", 0)]


@pytest.mark.full
def test_of_a_micro_batch_that_one_target_has_each_keeps_the_letters_of_its_own_try(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": 0}, {"n": 3, "d": 5})
    targets = (place.table, place.lake)
    with pytest.raises(FlowError, match="locks"):
        place.run(FIRST, *targets)
    assert (n(place.folder), place.letters()) == ([1, 3], [(2, None, "pending", 0)])
    place.blocked.unlink()
    place.run(SECOND, *targets)
    assert (n(place.folder), place.in_lake()) == ([1, 3], [1, 2])
    assert place.letters() == [(2, "main.numbers", "pending", 0), (3, "raw/n", "pending", 0)]
    assert service.replay_letters(place.spec(FIRST, *targets), LetterSelection()).to_dict() == {
        "taken": 2, "succeeded": 1, "redeadlettered": 1, "parked": 0,
    }  # fmt: skip
    assert place.letters() == [(2, "main.numbers", "pending", 0)]  # for its one target, whatever step it fails in
    assert service.replay_letters(place.spec(HEALED, *targets), ALL).succeeded == 1
    assert (n(place.folder), place.in_lake()) == ([1, 2, 3], [1, 2, 3])


@pytest.mark.full("a start after a start")
def test_the_first_micro_batch_of_a_start_leaves_other_letters_alone(place: Place) -> None:
    for number in range(3):
        place.put(str(number), {"n": number, "d": 0}, {"n": 10 + number, "d": 1})
        place.run(FIRST)
    assert place.letters() == [(number, None, "pending", number) for number in range(3)]
    assert n(place.folder) == [10, 11, 12]


@pytest.mark.full
def test_equal_rows_are_letters_of_their_own_and_all_are_read(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": 0}, {"n": 2, "d": 0})
    assert place.run(FIRST).total_rows == 3
    place.put("2", {"n": 2, "d": 0}, {"n": 3, "d": 1})
    assert place.run(FIRST).total_rows == 2
    assert place.letters() == [(2, None, "pending", 0), (2, None, "pending", 0), (2, None, "pending", 1)]
    assert {letter.payload for letter in service.list_letters(place.spec(FIRST), bodies=True)} == {b'{"n": 2, "d": 0}'}
    assert service.replay_letters(place.spec(FIRST), ALL).redeadlettered == 3
    assert len(place.letters()) == 3
    assert service.replay_letters(place.spec(HEALED), ALL).succeeded == 3
    assert n(place.folder) == [1, 2, 2, 2, 3]


@pytest.mark.full
def test_equal_rows_that_sql_made_of_several_are_letters_of_their_own(place: Place) -> None:
    place.put("1", *({"n": 7, "d": None, "group": number} for number in range(3)), {"n": 1, "d": 1, "group": 9})
    sums = 'SELECT max(n) AS n, sum(d) AS v FROM source GROUP BY "group"'.replace('"', "`")
    strict = Target(connection=shop(place.folder), table=Strict, mode="append")
    assert place.run(sums, strict).total_rows == 4
    assert n(place.folder, "strict") == [1]
    assert place.letters() == [(7, "main.strict", "pending", 0)] * 3
    assert service.replay_letters(place.spec(sums, strict), ALL).redeadlettered == 3


# Targets that are behind ------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_target_that_is_behind_catches_up_though_nothing_comes(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1})
    spec = place.spec(None, place.table, place.lake, continue_on_target_failure=True)
    opened = open_stream(spec, BatchBarrier(), still_ours=lambda: None, once=True)
    try:
        opened.start().awaitTermination()
        assert (opened.work.catch_up(), opened.work.counts.behind) == (1, {"main.numbers": 0, "raw/n": 1})
        place.blocked.unlink()
        assert (opened.work.catch_up(), opened.work.counts.behind) == (0, {"main.numbers": 0, "raw/n": 0})
        opened.work.barrier.close()
        assert opened.work.catch_up() == 0
    finally:
        opened.close()
    assert (n(place.folder), place.in_lake()) == ([1], [1])


def test_a_lease_that_is_lost_ends_the_stream_however_patient_it_is(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1})
    spec, asked = place.spec(None, place.table, place.lake, continue_on_target_failure=True), list[int]()

    def lost_by_now() -> None:
        asked.append(1)
        if len(asked) > 2:
            raise LeaseLost("somebody else runs it")

    opened = open_stream(spec, BatchBarrier(), still_ours=lost_by_now, once=True)
    try:
        with pytest.raises(Exception, match="somebody else runs it"):
            opened.start().awaitTermination()
        assert isinstance(opened.work.failure, LeaseLost)
        assert not opened.folder.root.joinpath("behind").exists()
        assert opened.folder.last_committed() is None
    finally:
        opened.close()


@pytest.mark.parametrize("policy", ["fail", pytest.param("dlq", marks=pytest.mark.full("fail shows the same"))])
def test_what_a_target_misses_is_kept_with_fields_that_were_not_known_before(place: Place, policy: str) -> None:
    house, moved = place.folder / "house", place.folder / "moved"
    house.mkdir()
    there = [SQLiteConnection(name, path=str(house / f"{name}.db")) for name in ("other", "another")]
    targets = [Target(connection=database, table=("main", "numbers")) for database in there]
    spec = place.spec(None, *targets, on_drift="evolve", continue_on_target_failure=True)
    spec = replace(spec, bad_rows=replace(spec.bad_rows, policy=policy))
    place.put("1", {"n": 1, "d": 1})
    run(spec)
    house.rename(moved)
    house.write_text("not a folder")
    place.put("2", {"n": 2, "d": 2, "note": "new"})
    with pytest.raises(FlowError, match="behind"):
        run(spec)
    house.unlink()
    moved.rename(house)
    place.put("3", {"n": 3, "d": 3})
    run(spec)
    for connection in there:
        with closing(sqlite3.connect(connection.path)) as database:
            found = database.execute("SELECT n, d, note FROM numbers ORDER BY n").fetchall()
        assert found == [(1, 1, None), (2, 2, "new"), (3, 3, None)]


@pytest.mark.full
def test_bad_rows_that_are_caught_up_with_count_for_their_own_micro_batch(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": None})
    there = SQLiteConnection("other", path=str(place.blocked / "other.db"))
    targets = (place.table, Target(connection=there, table=Strict, mode="append"))
    options = {"continue_on_target_failure": True, "max_bad_fraction": 0.5}
    sql = "SELECT n, d AS v FROM source"
    with pytest.raises(FlowError, match="behind"):
        place.run(sql, *targets, **options)
    place.blocked.unlink()
    place.blocked.mkdir()
    place.put("2")
    place.run(sql, *targets, **options)
    assert place.letters() == [(2, "main.strict", "pending", 0)]
    assert n(place.folder) == [1, 2]


@pytest.mark.full
def test_the_database_of_the_letters_may_be_down_while_there_are_none(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1})
    there = SQLiteConnection("other", path=str(place.blocked / "other.db"))
    first = Target(connection=there, table=("main", "numbers"))
    local = ObjectStoreLocalConnection("local", path=str(place.folder / "local"), format="csv")
    targets = (first, Target(connection=local, prefix="raw/n"))
    with pytest.raises(FlowError, match="behind"):
        place.run(FIRST, *targets, continue_on_target_failure=True)
    assert len(list((place.folder / "local" / "raw").rglob("*.csv"))) == 1
    place.blocked.unlink()
    place.blocked.mkdir()
    place.run(FIRST, *targets, continue_on_target_failure=True)
    assert (place.blocked / "other.db").exists()


@pytest.mark.full
def test_a_row_that_two_targets_refuse_is_one_bad_row(place: Place) -> None:
    place.put("1", {"n": 1, "d": 1}, {"n": 2, "d": None})
    targets = [Target(connection=shop(place.folder), table=table, mode="append") for table in (Strict, Stricter)]
    place.run("SELECT n, d AS v FROM source", *targets, max_bad_fraction=0.5)
    assert place.letters() == [(2, "main.strict", "pending", 0), (2, "main.stricter", "pending", 0)]
    assert (n(place.folder, "strict"), n(place.folder, "stricter")) == ([1], [1])


@pytest.mark.full("what it costs; what it keeps is tested by default")
def test_setting_bad_rows_aside_costs_no_job_while_there_are_none(place: Place) -> None:
    strict = Target(connection=shop(place.folder), table=Strict)
    counted = spark_session(JARS).sparkContext._jsc.sc().dagScheduler()
    jobs = {}
    for policy in ("fail", "dlq", "drop"):
        spec = place.spec(None, strict)
        spec = replace(spec, name=policy, bad_rows=replace(spec.bad_rows, policy=policy))
        place.put(f"{policy}-1", {"n": 1, "v": 2})
        run(spec)  # the first one learns the columns
        place.put(f"{policy}-2", {"n": 3, "v": 4})
        before = counted.numTotalJobs()
        assert run(spec).iterations == 1
        jobs[policy] = counted.numTotalJobs() - before
    assert jobs == dict.fromkeys(jobs, jobs["fail"])


@pytest.mark.parametrize("sql", ["SELECT n, v FROM source LIMIT 1", "SELECT n, CAST(1 / v AS BIGINT) AS v FROM source"])
def test_rows_that_cannot_be_read_are_letters_whatever_the_sql_reads_or_fails_on(place: Place, sql: str) -> None:
    place.put("1", {"n": 1, "v": 1})
    place.run(sql)
    place.put("2", {"n": 2, "v": 0}, {"n": 3, "v": 1})
    with (place.folder / "in" / "n" / "2.jsonl").open("a") as out:
        out.write("{not json\n")
    place.run(sql)
    found = rows(place.folder, "SELECT payload FROM ematix_flow_dlq_records WHERE stage = 'decode'")
    assert [bytes(payload) for (payload,) in found] == [b"{not json"]
