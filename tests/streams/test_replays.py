"""Dead letters taken through their stream again: once, by the declaration as it is now, or back to their topic."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import (
    Annotated,
    BigInt,
    ObjectStoreLocalConnection,
    Source,
    String,
    Target,
    _core,
    ematix,
    pk,
)
from ematix_flow.foundation.errors import PlanError, UnknownName, Unsupported
from ematix_flow.streaming.dlq import service
from ematix_flow.streaming.dlq.dead_letter import LetterSelection
from ematix_flow.streaming.dlq.table import DeadLetterTable
from tests.services.kafka import Kafka
from tests.streams.kafka_topics import everything, new_topic, send
from tests.streams.operated import GOOD, HEALED, declared, ended, flow, orders, rows, run, shop, toml, watched

pytestmark = pytest.mark.usefixtures("homes", "every_jar")
ALL = LetterSelection()


def test_a_replay_takes_what_the_declaration_can_take_now(kafka: Kafka, tmp_path: Path, run_log: Any) -> None:
    topic = new_topic(kafka)
    bad = [
        {"value": b'{"id": 3, "amount": ', "key": b"cut"},
        {"value": json.dumps({"id": 4, "amount": "four"}), "headers": [("from", b"\x00\x01")]},
    ]
    send(kafka, topic, [*GOOD, *bad])
    spec = orders(kafka, topic, tmp_path)
    run(spec, run_log)
    assert rows(tmp_path, "SELECT id, amount FROM orders") == [(1, 1), (2, 2)]
    found = {letter.stage: letter for letter in service.list_letters(spec)}
    assert set(found) == {"decode", "transform"}
    shown = service.find_letter(spec, found["transform"].id[:10])
    assert shown is not None
    assert (shown.payload, shown.place, shown.source_id) == (
        bad[1]["value"].encode(),
        {"partition": 0, "offset": 3},
        topic,
    )  # type: ignore[union-attr]
    assert shown.headers == [("from", b"\x00\x01")]
    report = service.replay_letters(spec, ALL, run_log=run_log)
    assert report.to_dict() == {"taken": 2, "succeeded": 0, "redeadlettered": 2, "parked": 0}
    assert {letter.attempt for letter in service.list_letters(spec)} == {2}
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(2,)]
    healed = orders(
        kafka, topic, tmp_path,
        transform_sql="SELECT id, coalesce(try_cast(amount AS INT), 0) AS amount, _source.offset AS at FROM source",
    )  # fmt: skip
    report = service.replay_letters(healed, ALL, run_log=run_log)
    assert report.to_dict() == {"taken": 2, "succeeded": 1, "redeadlettered": 0, "parked": 1}
    assert rows(tmp_path, "SELECT id, amount, at FROM orders WHERE id = 4") == [(4, 0, 3)]
    (left,) = service.list_letters(spec)
    assert (left.stage, left.status, left.attempt) == ("decode", "parked", 3)
    assert service.replay_letters(healed, ALL).taken == 0
    kinds = [(record.kind, record.status) for record in run_log.list_runs(pipeline="orders")[0]]
    assert kinds.count(("replay", "succeeded")) == 2


@ematix.table(schema="main")
class Short:
    id: Annotated[BigInt, pk()]
    amount: String[10]


@pytest.mark.full
def test_a_letter_that_one_target_refused_goes_to_that_target_only(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [*GOOD, {"value": json.dumps({"id": 3, "amount": "x" * 40})}])

    def spec(sql: str | None) -> Any:
        targets = [
            Target(connection=shop(tmp_path), table=("main", "long")),
            Target(connection=shop(tmp_path), table=Short, mode="append"),
        ]
        return orders(kafka, topic, tmp_path, transform_sql=sql, target=None, target_table=None, targets=targets)

    run(spec(None))
    assert (rows(tmp_path, "SELECT count(*) FROM long"), rows(tmp_path, "SELECT count(*) FROM short")) == (
        [(3,)],
        [(2,)],
    )
    (letter,) = service.list_letters(spec(None))
    assert (letter.stage, letter.target) == ("write", "main.short")
    assert service.replay_letters(spec(None), ALL).redeadlettered == 1
    healed = spec("SELECT id, left(amount, 10) AS amount, _event_ts FROM source")
    assert service.replay_letters(healed, ALL).succeeded == 1
    assert (rows(tmp_path, "SELECT count(*) FROM long"), rows(tmp_path, "SELECT count(*) FROM short")) == (
        [(3,)],
        [(3,)],
    )


@pytest.mark.full("a sentence")
def test_a_target_that_is_gone_from_the_declaration_is_named(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [{"value": b"{"}])
    spec = orders(kafka, topic, tmp_path)
    run(spec)
    (letter,) = service.list_letters(spec)
    _sql(tmp_path, f"UPDATE ematix_flow_dlq_records SET target = 'main.gone' WHERE id = '{letter.id}'")
    with pytest.raises(PlanError, match=r"no target 'main\.gone' any more"):
        service.replay_letters(spec, ALL)
    assert service.park_letters(spec, ALL) == 1


@pytest.mark.full
def test_a_replay_that_dies_behind_its_publish_is_repeated_by_the_next_one(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [*GOOD, *({"value": json.dumps({"id": number, "amount": "many"})} for number in (3, 4))])
    run(orders(kafka, topic, tmp_path))
    healed = orders(
        kafka, topic, tmp_path,
        transform_sql="SELECT id, coalesce(try_cast(amount AS INT), -1) AS amount FROM source",
    )  # fmt: skip

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterTable, "mark_done", dies)
        with pytest.raises(KeyboardInterrupt):
            service.replay_letters(healed, ALL)
    assert rows(tmp_path, "SELECT id FROM orders WHERE id > 2") == [(3,), (4,)]
    assert {letter.status for letter in service.list_letters(healed)} == {"pending"}
    assert service.replay_letters(healed, ALL).to_dict() == {
        "taken": 2,
        "succeeded": 2,
        "redeadlettered": 0,
        "parked": 0,
    }
    assert rows(tmp_path, "SELECT id FROM orders WHERE id > 2") == [(3,), (4,)]
    assert service.list_letters(healed) == []


@pytest.mark.full("the same without a kill is shown by the default run")
def test_a_replay_that_is_killed_behind_its_publish_is_repeated_without_a_trace(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [*GOOD, *({"value": json.dumps({"id": number, "amount": "many"})} for number in (3, 4))])
    run(orders(kafka, topic, tmp_path))
    assert rows(tmp_path, "SELECT count(*) FROM orders") == [(2,)]
    (tmp_path / "pipeline.toml").write_text(toml("orders", topic, kafka.open, tmp_path, "orders", HEALED))
    killed = flow("dlq", "replay", "--all", folder=tmp_path, EMATIX_FLOW_FAULT="after_publish")
    assert ended(killed)[0] == -9
    assert rows(tmp_path, "SELECT id, amount FROM orders WHERE id > 2") == [(3, -1), (4, -1)]
    assert rows(tmp_path, "SELECT DISTINCT status FROM ematix_flow_dlq_records") == [("leased",)]
    code, out, err = ended(flow("dlq", "replay", "--all", "--json", folder=tmp_path))
    assert (code, json.loads(out)["report"]["taken"]) == (0, 0), err
    _sql(tmp_path, "UPDATE ematix_flow_dlq_records SET leased_until = '2026-01-01 00:00:00.000000+00:00'")
    code, out, err = ended(flow("dlq", "replay", "--all", "--json", folder=tmp_path))
    assert (code, json.loads(out)["report"]["succeeded"]) == (0, 2), err
    assert rows(tmp_path, "SELECT id, amount FROM orders WHERE id > 2") == [(3, -1), (4, -1)]
    assert rows(tmp_path, "SELECT count(*) FROM ematix_flow_dlq_records") == [(0,)]


@pytest.mark.full("messages of Kafka come back in the default run")
def test_rows_of_files_come_back_from_their_letters(tmp_path: Path) -> None:
    source = watched(tmp_path, {"a.jsonl": ([{"id": 1, "amount": "1"}, {"id": 2, "amount": "two"}], 1_750_000_000)})

    def spec(sql: str) -> Any:
        return declared(
            name="orders", source=source, source_query="events", target=shop(tmp_path),
            target_table=("main", "orders"), transform_on_error="dlq", transform_sql=sql,
        )  # fmt: skip

    failing = spec("SELECT id, CAST(amount AS INT) AS amount FROM source")
    run(failing)
    assert rows(tmp_path, "SELECT id FROM orders") == [(1,)]
    assert [letter.stage for letter in service.list_letters(failing)] == ["transform"]
    report = service.replay_letters(spec("SELECT id, coalesce(try_cast(amount AS INT), 0) AS amount FROM source"), ALL)
    assert (report.taken, report.succeeded) == (1, 1)
    assert rows(tmp_path, "SELECT id, amount FROM orders") == [(1, 1), (2, 0)]


def lines_of(folder: Path, **options: Any) -> Any:
    """A stream of CSV files into a table, which sets bad lines aside."""
    source = ObjectStoreLocalConnection("incoming", path=str(folder / "incoming"), format="csv")
    return declared(
        name="orders", source=Source(source, "events", csv_read_options={"delimiter": ";"}), target=shop(folder),
        target_table=("main", "orders"), transform_on_error="dlq", **options,
    )  # fmt: skip


def put(folder: Path, name: str, *lines: str) -> Path:
    path = folder / "incoming" / "events" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, (1_750_000_000, 1_750_000_000))
    return path


def corrected(folder: Path, wrong: str, right: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        done = connection.execute(
            "UPDATE ematix_flow_dlq_records SET payload = ? WHERE payload = ?", (right.encode(), wrong.encode())
        )
        assert done.rowcount == 1


@pytest.mark.full
def test_a_line_of_csv_comes_back_by_the_columns_of_its_file(tmp_path: Path) -> None:
    spec = lines_of(tmp_path)
    put(tmp_path, "a.csv", "id;v", "1;a")
    run(spec)
    put(tmp_path, "day=7/b.csv", "v;id", "b;two", "c;3;x", "v;id", '"d;d";four')
    run(spec)
    assert {letter.payload_format for letter in service.list_letters(spec)} == {"csv"}
    corrected(tmp_path, "b;two", "b;2")
    corrected(tmp_path, '"d;d";four', '"d;""d";4')
    report = service.replay_letters(spec, ALL)
    assert report.to_dict() == {"taken": 4, "succeeded": 2, "redeadlettered": 2, "parked": 0}
    assert rows(tmp_path, "SELECT id, v, day FROM orders") == [(1, "a", None), (2, "b", 7), (4, 'd;"d', 7)]
    said = {
        letter.payload: letter.error
        for letter in (service.find_letter(spec, one.id) for one in service.list_letters(spec))
    }
    assert "the header of its file" in said[b"v;id"]
    assert "more or fewer than the 2 fields" in said[b"c;3;x"]


@pytest.mark.full("a file that is there stands for it")
def test_a_line_of_a_file_that_is_gone_comes_back_by_the_columns_that_are_known(tmp_path: Path) -> None:
    spec = lines_of(tmp_path)
    path = put(tmp_path, "a.csv", "id;v", "1;a", "2;b;c")
    run(spec)
    path.unlink()
    fields = lines_of(tmp_path, fields={"v": "STRING", "id": "BIGINT"})
    assert service.replay_letters(fields, ALL).redeadlettered == 1
    (letter,) = service.list_letters(spec)
    assert "the file of this line is gone" in letter.error
    corrected(tmp_path, "2;b;c", "2;b")
    assert service.replay_letters(spec, ALL).succeeded == 1
    assert rows(tmp_path, "SELECT id, v FROM orders") == [(1, "a"), (2, "b")]


@pytest.mark.full("a line that is good stands for it")
def test_a_line_of_csv_that_fails_later_stays_a_line(tmp_path: Path) -> None:
    spec = lines_of(tmp_path)
    put(tmp_path, "a.csv", "id;v", "1;a", "2;b;c")
    run(spec)
    corrected(tmp_path, "2;b;c", "2;b")
    failing = lines_of(tmp_path, transform_sql="SELECT IF(v = 'b', raise_error('not yet'), id) AS id, v FROM source")
    assert service.replay_letters(failing, ALL).redeadlettered == 1
    assert [(letter.stage, letter.payload_format) for letter in service.list_letters(spec)] == [("transform", "csv")]
    assert service.replay_letters(spec, ALL).succeeded == 1
    assert rows(tmp_path, "SELECT id, v FROM orders") == [(1, "a"), (2, "b")]


# In a topic ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_letters_in_a_topic_are_sent_back_once_parked_and_purged(kafka: Kafka, tmp_path: Path) -> None:
    topic, dead = new_topic(kafka), new_topic(kafka)
    bad = {"value": json.dumps({"id": 3, "amount": "three"}), "key": b"k3", "headers": [("from", b"\x00")]}
    send(kafka, topic, [*GOOD, bad])
    send(kafka, dead, [{"value": b"{", "headers": [("ematix-pipeline-name", b"others")]}])
    spec = orders(kafka, topic, tmp_path, dead_letter_topic=dead)
    run(spec)
    (letter,) = service.list_letters(spec)
    assert (letter.stage, letter.source_id, letter.key, letter.headers) == (
        "transform",
        topic,
        b"k3",
        [("from", b"\x00")],
    )
    assert "three" in letter.error
    shown = service.find_letter(spec, letter.id)
    assert shown is not None
    assert json.loads(shown.payload or b"") == {"id": 3, "amount": "three"}
    assert service.find_letter(spec, "0:70") is None
    assert service.replay_letters(spec, ALL).succeeded == 1
    assert service.replay_letters(spec, ALL).taken == 0
    back = [(message.key(), message.value(), message.headers()) for message in everything(kafka, topic)][3:]
    assert back == [(b"k3", letter.payload, [("from", b"\x00")])]
    assert service.replay_letters(spec, LetterSelection(ids=(letter.id,))).succeeded == 1
    with pytest.raises(UnknownName):
        service.replay_letters(spec, LetterSelection(ids=("9:9",)))
    with pytest.raises(Unsupported, match="drops its oldest only"):
        service.purge_letters(spec, LetterSelection(ids=(letter.id,)))
    run(spec)
    assert service.park_letters(spec, ALL) > 0
    assert (service.replay_letters(spec, ALL).taken, len(service.list_letters(spec))) == (0, 3)
    assert service.purge_letters(spec, LetterSelection(older_than=timedelta(hours=1))) == 0
    assert service.purge_letters(spec, ALL) > 0
    assert service.list_letters(spec) == []


@pytest.mark.full("the commands call the same functions")
def test_the_core_functions_take_a_stream_as_toml(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    send(kafka, topic, [*GOOD, {"value": b"{"}, {"value": b"["}])
    run(orders(kafka, topic, tmp_path))
    said = toml("orders", topic, kafka.open, tmp_path, "orders", HEALED)
    found = _core.dlq_records(said)
    assert sorted(item["payload_preview"] for item in found) == ["[", "{"]
    assert _core.dlq_records(said, page=1, page_size=2) == []
    one = _core.dlq_record_by_id(said, found[0]["id"])
    assert one is not None
    assert one["stage"] == "decode"
    assert _core.dlq_record_by_id(said, "00") is None
    assert _core.dlq_stats(said, int(datetime.now().timestamp() * 1000))["depth"]["pending"] == 2
    report = _core.dlq_replay(said, json.dumps({"kind": "first_n", "n": 1}), max_attempts=2)
    assert report == {"taken": 1, "succeeded": 0, "redeadlettered": 0, "parked": 1}
    assert _core.dlq_park(said, '{"kind": "all"}') == 1
    assert _core.dlq_purge(said, json.dumps({"kind": "ids", "ids": [item["id"] for item in found]})) == 2
    made = _core.stream_rewind(said, json.dumps({"kind": "timestamp", "ms": 0}), True)
    assert (made["pipeline"], made["state_cleared"], made["sources"][0]["rows"]) == ("orders", False, 4)
    with pytest.raises(ValueError, match="selects no dead letters"):
        _core.dlq_park(said, '{"kind": "some"}')


def _sql(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
        connection.execute(statement)
