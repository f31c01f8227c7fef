"""Where state is kept, in folders, buckets and PostgreSQL: what a note names can be read, and nothing else stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ematix_flow import DeltaS3Connection
from ematix_flow.backends.postgres.state import OFFSETS, STATE, PostgresStateBackend
from ematix_flow.contract.state import StateBackend, StateLocation, StateManifest
from ematix_flow.declare.endpoints import Source
from ematix_flow.declare.streams.parts import StateStore
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import ConnectionFailed, LeaseLost, RunFailed
from ematix_flow.storage.paths import LOCK, LakeRoot
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder
from ematix_flow.streaming.state.local_state import NOTE, FolderStateBackend, MemoryStateBackend, state_backend_of
from tests.harness.buckets import TestBucket
from tests.streams.conftest import JARS

pytestmark = pytest.mark.usefixtures("every_jar")

Make = Callable[..., StateBackend]


def numbers(*given: int | None) -> Any:
    return spark_session(JARS).createDataFrame([(number,) for number in given], "n BIGINT")


def read(backend: StateBackend, part: str) -> list[int | None]:
    return sorted(row.n for row in backend.read(part).collect())


def in_postgres(url: str, stream: str, generation: str = "g1", *, since: int = 0, **said: Any) -> PostgresStateBackend:
    return PostgresStateBackend(StateLocation(url, "state", stream, generation, since), **said)


@pytest.fixture(
    params=["folder", "memory", "postgres", pytest.param("bucket", marks=pytest.mark.full("Spark writes both alike"))]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes the backend of a stream, as often as its process is started."""
    opened: list[StateBackend] = []

    def folder() -> StateBackend:
        return FolderStateBackend(tmp_path / "state")

    def memory() -> StateBackend:
        opened.append(opened[0] if opened else MemoryStateBackend.opened())
        return opened[0]

    def postgres() -> StateBackend:
        return in_postgres(request.getfixturevalue("fresh_postgres"), request.node.name)

    def bucket() -> StateBackend:
        there = TestBucket.at(request.getfixturevalue("s3_url"), "state") if not opened else None
        if there is not None:
            opened.append(FolderStateBackend(LakeRoot.of(DeltaS3Connection("lake", **there.fields)).root / "state"))
        return FolderStateBackend(opened[0].root) if isinstance(opened[0], FolderStateBackend) else opened[0]

    yield {"folder": folder, "memory": memory, "postgres": postgres, "bucket": bucket}[request.param]
    for backend in opened:
        backend.close()


def test_what_a_note_names_is_there_for_the_next_process_and_nothing_else(make: Make) -> None:
    backend = make()
    assert backend.manifest() is None
    assert (backend.write("a", numbers(1, 2)), backend.write("b", numbers(3)), backend.write("out", numbers(9))) == (
        2,
        1,
        1,
    )
    first = StateManifest(
        0, ("a", "b"), rows=3, outcome="out", mark=7, newest=(7, None), heard=(5, None), told={"late": 2}
    )
    assert make().manifest() is None  # before it is said
    backend.commit(first)
    again = make()
    assert (again.manifest(), read(again, "a"), read(again, "b"), read(again, "out")) == (first, [1, 2], [3], [9])
    again.write("c", again.read("a").union(again.read("b")))
    again.write("late", numbers(8))
    again.commit(StateManifest(1, ("c",), rows=3, late="late"))
    assert (read(again, "c"), read(again, "late")) == ([1, 2, 3], [8])
    for gone in ("a", "b", "out"):
        with pytest.raises(RunFailed, match=f"no part '{gone}'"):
            again.read(gone)


@pytest.mark.full
def test_a_part_is_written_in_place_of_an_earlier_try_and_may_be_of_another_shape(make: Make) -> None:
    backend = make()
    backend.write("a", numbers(1, 2, 3))
    assert backend.write("a", spark_session(JARS).createDataFrame([("x", 4)], "s STRING, n BIGINT")) == 1
    backend.commit(StateManifest(0, ("a",)))
    assert [tuple(row) for row in make().read("a").collect()] == [("x", 4)]


@pytest.mark.full
def test_what_a_dead_process_left_is_no_part_of_the_state_and_goes_with_the_next_note(make: Make) -> None:
    backend = make()
    backend.write("a", numbers(1))
    backend.commit(StateManifest(0, ("a",)))
    backend.write("b", numbers(2))  # and died before it said so
    again = make()
    assert again.manifest() == StateManifest(0, ("a",))
    again.write("c", numbers(3))
    again.commit(StateManifest(1, ("a", "c")))
    assert (read(again, "a"), read(again, "c")) == ([1], [3])
    with pytest.raises(RunFailed, match="no part 'b'"):
        again.read("b")


@pytest.mark.parametrize("make", ["folder", "postgres", "bucket"], indirect=True)
def test_a_process_that_slept_through_a_commit_of_another_keeps_nothing(make: Make) -> None:
    sleeper = make()
    sleeper.write("a", numbers(1))
    sleeper.commit(StateManifest(0, ("a",)))
    other = make()
    assert other.manifest() == StateManifest(0, ("a",))
    other.write("b", numbers(2))
    other.commit(StateManifest(1, ("a", "b")))
    sleeper.write("c", numbers(3))
    with pytest.raises(LeaseLost):
        sleeper.commit(StateManifest(1, ("a", "c")))
    other.write("d", numbers(4))
    other.commit(StateManifest(2, ("a", "b", "d")))
    assert make().manifest() == StateManifest(2, ("a", "b", "d"))
    assert [read(other, part) for part in ("a", "b", "d")] == [[1], [2], [4]]


@pytest.mark.full
def test_a_part_without_rows_keeps_its_columns_and_parts_of_different_columns_add_up(make: Make) -> None:
    spark, backend = spark_session(JARS), make()
    when = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=timezone.utc)
    wide = "n BIGINT, row STRUCT<`a b`: DECIMAL(10,2), at: TIMESTAMP, tags: MAP<STRING, ARRAY<INT>>>, late INT"
    assert backend.write("none", spark.createDataFrame([], "n BIGINT, row STRUCT<`a b`: DECIMAL(10,2)>")) == 0
    assert backend.write("never", numbers(1).where("false")) == 0
    assert backend.write("wide", spark.createDataFrame([(1, (None, when, {"x": [1, None]}), None)], wide)) == 1
    backend.commit(StateManifest(0, ("none", "never", "wide")))
    again = make()
    none, found = again.read("none"), again.read("wide")
    assert [(field.name, field.dataType.simpleString()) for field in none.schema] == [
        ("n", "bigint"), ("row", "struct<a b:decimal(10,2)>"),
    ]  # fmt: skip
    assert again.read("never").columns == ["n"]
    both = none.unionByName(again.read("never"), allowMissingColumns=True).unionByName(found, allowMissingColumns=True)
    (row,) = both.selectExpr(
        "n", "row.at = TIMESTAMP'2026-03-01 12:30:00.123456' AS same", "row.tags['x'][0] AS x"
    ).collect()
    assert tuple(row) == (1, True, 1)


@pytest.mark.full
@pytest.mark.parametrize("root", ["plain", "with [brackets] and {braces}"])
def test_a_folder_has_one_file_for_few_rows_and_several_for_many(tmp_path: Path, root: str) -> None:
    backend, spark = FolderStateBackend(tmp_path / root), spark_session(JARS)
    assert backend.write("few", spark.range(0, 1000, 1, 8)) == 1000
    assert backend.write("many", spark.range(0, 200_000, 1, 8).selectExpr("id", "uuid() AS text")) == 200_000
    files = {part: len(list((tmp_path / root / f"part-{part}").glob("*.parquet"))) for part in ("few", "many")}
    assert files["few"] == 1
    assert files["many"] > 1
    assert (backend.read("few").count(), backend.read("many").count()) == (1000, 200_000)


@pytest.mark.full
def test_a_note_that_is_damaged_is_not_taken_for_an_empty_state(tmp_path: Path) -> None:
    backend = FolderStateBackend(tmp_path)
    backend.commit(StateManifest(3))
    (tmp_path / ".x.tmp").write_text("half")
    (tmp_path / NOTE).write_text((tmp_path / NOTE).read_text()[:9])
    with pytest.raises(RunFailed, match="is damaged") as caught:
        backend.manifest()
    assert "flow stream rewind" in str(caught.value)
    backend.commit(StateManifest(4))
    assert {item.name for item in tmp_path.iterdir()} == {NOTE, LOCK}


@pytest.mark.full
def test_a_large_part_is_several_pieces_in_postgres(fresh_postgres: str) -> None:
    backend = in_postgres(fresh_postgres, "large", bytes_a_piece=100_000)
    rows = spark_session(JARS).range(0, 50_000, 1, 4).selectExpr("id AS n", "repeat('x', 20) AS text")
    assert backend.write("a", rows) == 50_000
    backend.commit(StateManifest(0, ("a",), rows=50_000))
    found = (
        backend.read("a").selectExpr("count(*) AS rows", "count(DISTINCT n) AS different", "sum(n) AS total").collect()
    )
    assert [tuple(row) for row in found] == [(50_000, 50_000, sum(range(50_000)))]
    with psycopg.connect(fresh_postgres) as session:
        sizes = session.execute(
            f"SELECT length(state_blob) FROM state.{STATE} WHERE pipeline_name = 'large'"
        ).fetchall()
    assert len(sizes) > 10
    assert max(size for (size,) in sizes) < 150_000


@pytest.mark.full
def test_pieces_of_attempts_that_do_not_count_are_never_read(fresh_postgres: str) -> None:
    backend = in_postgres(fresh_postgres, "tries")
    backend.write("a", numbers(1))
    backend.commit(StateManifest(0, ("a",)))
    with psycopg.connect(fresh_postgres) as session:  # a task that Spark gave up writes the same rows a little later
        session.execute(
            f"INSERT INTO state.{STATE} SELECT pipeline_name, regexp_replace(convert_from(group_key, 'utf8'), "
            f"'[0-9]+/([0-9]+)$', '99/\\1')::bytea, state_blob, 0, now() FROM state.{STATE} "
            "WHERE pipeline_name = 'tries' AND convert_from(group_key, 'utf8') LIKE '%/rows/%'"
        )
    assert read(backend, "a") == [1]
    assert len(keys(fresh_postgres, "tries")) == 4
    backend.commit(StateManifest(1, ("a",)))
    assert (read(backend, "a"), len(keys(fresh_postgres, "tries"))) == ([1], 3)


def keys(url: str, stream: str) -> list[str]:
    with psycopg.connect(url) as session:
        found = session.execute(f"SELECT group_key FROM state.{STATE} WHERE pipeline_name = %s", (stream,)).fetchall()
    return sorted(key.decode() for (key,) in found)


def test_generations_and_streams_know_nothing_of_each_other_and_a_later_one_removes_an_earlier(
    fresh_postgres: str,
) -> None:
    old, other = in_postgres(fresh_postgres, "pairs", "g1", since=1), in_postgres(fresh_postgres, "others", since=9)
    for backend in (old, other):
        backend.write("a", numbers(1))
        backend.commit(StateManifest(7, ("a",)))
    new = in_postgres(fresh_postgres, "pairs", "g2", since=2)
    assert new.manifest() is None
    with pytest.raises(RunFailed, match="no part 'a'"):
        new.read("a")
    new.write("a", numbers(2))
    assert (read(old, "a"), read(new, "a")) == ([1], [2])
    new.commit(StateManifest(0, ("a",)))
    assert (read(new, "a"), read(other, "a"), old.manifest()) == ([2], [1], None)
    assert all(key.startswith("flow/g2/") for key in keys(fresh_postgres, "pairs"))
    with pytest.raises(LeaseLost, match="begun anew"):
        old.commit(StateManifest(8))
    assert new.manifest() == StateManifest(0, ("a",))
    with psycopg.connect(fresh_postgres) as session:
        (kept,) = session.execute(
            f"SELECT offset_bytes, state_version FROM state.{OFFSETS} WHERE pipeline_name = 'pairs'"
        ).fetchall()
    assert (json.loads(kept[0]), kept[1]) == ({"generation": "g2", "since": 2, "batch": 0}, 0)


@pytest.mark.full
def test_a_note_and_the_end_of_what_it_does_not_name_are_one_step_in_postgres(fresh_postgres: str) -> None:
    backend = in_postgres(fresh_postgres, "steps")
    backend.write("a", numbers(1))
    backend.commit(StateManifest(0, ("a",)))
    with psycopg.connect(fresh_postgres, autocommit=True) as session:
        session.execute("CREATE FUNCTION state.no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$")
        session.execute(f"CREATE TRIGGER no BEFORE DELETE ON state.{STATE} EXECUTE FUNCTION state.no()")
        backend.write("b", numbers(2))
        with pytest.raises(Exception, match="no"):
            backend.commit(StateManifest(1, ("b",)))
        session.execute(f"DROP TRIGGER no ON state.{STATE}")
    assert (backend.manifest(), read(backend, "a")) == (StateManifest(0, ("a",)), [1])


@pytest.mark.full
def test_rows_of_others_in_the_same_table_stay(fresh_postgres: str) -> None:
    backend = in_postgres(fresh_postgres, "shared")
    assert backend.manifest() is None
    with psycopg.connect(fresh_postgres) as session:
        for key in (b"\x00\x01", b"zebra"):
            session.execute(f"INSERT INTO state.{STATE} VALUES ('shared', %s, '', 1, now())", (key,))
    backend.commit(StateManifest(0))
    assert len(keys(fresh_postgres, "shared")) == 3


@pytest.mark.full
def test_a_login_that_may_only_use_the_tables_needs_no_right_to_make_them(fresh_postgres: str) -> None:
    assert in_postgres(fresh_postgres, "any").manifest() is None
    with psycopg.connect(fresh_postgres, autocommit=True) as session:
        session.execute("CREATE ROLE keeps LOGIN PASSWORD 'open-sesame'")
        session.execute("GRANT USAGE ON SCHEMA state TO keeps")
        session.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA state TO keeps")
    there = urlsplit(fresh_postgres)
    url = there._replace(netloc=f"keeps:open-sesame@{there.hostname}:{there.port}").geturl()
    try:
        backend = in_postgres(url, "modest")
        backend.write("a", numbers(1))
        backend.commit(StateManifest(0, ("a",)))
        assert read(backend, "a") == [1]
    finally:
        with psycopg.connect(fresh_postgres, autocommit=True) as session:
            session.execute("DROP OWNED BY keeps")
            session.execute("DROP ROLE keeps")


def test_a_wrong_password_is_reported_without_showing_it(fresh_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = urlsplit(fresh_postgres)
    monkeypatch.setenv("STATE_PASSWORD", "wrong/hunter22")
    url = there._replace(netloc=f"{there.username}:${{STATE_PASSWORD}}@{there.hostname}:{there.port}").geturl()
    backend = in_postgres(url, "locked")
    with pytest.raises(ConnectionFailed) as caught:
        backend.manifest()
    said = str(caught.value)
    assert "the state store of locked" in said
    assert "password" in said
    assert "in the url of state_store" in said
    assert "hunter22" not in said + repr(backend) + repr(backend._state_blobs)


@pytest.mark.full
def test_a_stream_keeps_its_state_where_it_says(
    tmp_path: Path, fresh_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_URL", fresh_postgres)
    folder = CheckpointFolder(tmp_path)
    generation = folder.prepare()

    def kept_by(store: StateStore | None) -> StateBackend:
        return state_backend_of(StreamSpec("s", (Source("a", "b"),), (), state_store=store), folder, generation)

    beside = kept_by(None)
    beside.write("a", numbers(1))
    beside.commit(StateManifest(0, ("a",)))
    memory = kept_by(StateStore(kind="in_memory"))
    assert isinstance(memory, MemoryStateBackend)
    memory.commit(StateManifest(5))
    assert kept_by(StateStore(kind="in_memory")).manifest() is None
    memory.close()
    assert memory.manifest() is None
    database = kept_by(StateStore(kind="postgres", url="${STATE_URL}", schema="state"))
    assert isinstance(database, PostgresStateBackend)
    assert (database.location.generation, database.location.since, database.manifest()) == (
        generation,
        folder.generation_order(),
        None,
    )
    assert kept_by(None).manifest() == StateManifest(0, ("a",))
    aside = folder.start_new_generation("earliest", datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert kept_by(None).manifest() is None
    assert FolderStateBackend(aside / "state").manifest() == StateManifest(0, ("a",))
