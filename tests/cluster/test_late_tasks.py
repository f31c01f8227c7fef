"""A task that Spark has given up may live on: whatever it still writes into a stage is never published."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ematix_flow import BigInt, Text
from ematix_flow.backends.catalog import backend_for
from ematix_flow.contract.ddl import CreateTable
from ematix_flow.contract.shape import shape_of
from ematix_flow.contract.write import WriteJob
from ematix_flow.declare.strategy import Append
from ematix_flow.foundation.clock import now
from tests.contract.loading import declare, unique
from tests.harness import mysql, postgres
from tests.harness.base import Harness

LATE = 999


class Racing:
    """Tasks beside which another attempt writes the same rows, and ends only after these have answered."""

    def __init__(self, late: Callable[[], None], rows: int) -> None:
        self.late = late
        self.rows = rows

    def mapInArrow(self, func: Any, schema: str) -> Any:
        import pyarrow as pa

        self.late()
        batch = pa.RecordBatch.from_pydict(
            {"n": pa.array(range(self.rows), pa.int64()), "text": [f"row {n}" for n in range(self.rows)]}
        )
        self.answer = [row for found in func(iter([batch])) for row in found.to_pylist()]
        return self

    def collect(self) -> list[dict[str, Any]]:
        return self.answer


@pytest.fixture(params=["postgres", "mariadb"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "postgres":
        opened: Harness = postgres.open_system("postgres", request.getfixturevalue("postgres_url"))
    else:
        opened = mysql.open_system("mariadb", request.getfixturevalue("mariadb_url"))
    yield opened
    opened.close()


def published(
    harness: Harness, late: Callable[[str], None], rows: int, *, between: Callable[[], object] = lambda: None
) -> Counter[int]:
    """A load through the sink's own steps, with the late attempt in the middle; what the table holds afterwards."""
    backend = backend_for(harness.connection)
    assert backend.batch_sink is not None
    assert backend.ddl is not None
    table = declare({"n": BigInt, "text": Text}).spec()
    shape = shape_of(table, Append())
    run_id = str(uuid.uuid4())
    job = WriteJob(run_id, "late", unique("writer"), shape, Append(), now())
    backend.ddl(harness.connection).apply(shape, [CreateTable(shape.table)])
    sink: Any = backend.batch_sink(harness.connection)
    opening = sink.begin(job)
    stage = sink.stage_arrow(job, Racing(lambda: late(f"stage_{run_id.replace('-', '')}"), rows))
    between()
    result = sink.publish(job, stage, opening)
    sink.settle(job, opening, result, None)
    assert (stage.rows, result.counts.inserted) == (rows, rows)
    return Counter(row["n"] for row in harness.rows(table))


@pytest.mark.full
def test_an_attempt_that_was_counted_out_before_the_stage_is_read_leaves_nothing(harness: Harness) -> None:
    def at_once(stage: str) -> None:
        with writing(harness) as execute:
            execute(f"INSERT INTO ematix_flow.{stage} (n, text, _flow_attempt) VALUES (1, 'twice', {LATE})")

    assert published(harness, at_once, 50) == Counter(range(50))


def test_an_attempt_in_the_middle_of_its_write_does_not_come_through_later(harness: Harness) -> None:
    """Its transaction is open when the others have answered, and it commits when the stage is ready, if it can."""
    begun, staged, ended = threading.Event(), threading.Event(), threading.Event()
    failed: list[str] = []

    def write(stage: str) -> None:
        try:
            with writing(harness) as execute:
                execute(f"INSERT INTO ematix_flow.{stage} (n, text, _flow_attempt) VALUES (1, 'twice', {LATE})")
                begun.set()
                staged.wait(3)  # where the stage waits for this transaction, it has to end by itself
        except Exception as error:  # its connection was ended, which is as good
            failed.append(str(error))
        ended.set()

    def meanwhile(stage: str) -> None:
        threading.Thread(target=write, args=(stage,), daemon=True).start()
        assert begun.wait(10)

    def then() -> None:
        staged.set()
        assert ended.wait(10)

    assert published(harness, meanwhile, 50, between=then) == Counter(range(50))
    assert all("terminating connection" in text or "closed" in text for text in failed)


@pytest.mark.full
def test_an_attempt_that_begins_to_write_after_the_others_finds_no_stage(harness: Harness) -> None:
    refused: list[str] = []

    def late(stage: str) -> None:
        def write() -> None:
            until = time.monotonic() + 10
            while not refused and time.monotonic() < until:
                try:
                    with writing(harness) as execute:
                        execute(f"INSERT INTO ematix_flow.{stage} (n, text, _flow_attempt) VALUES (1, 'twice', {LATE})")
                except Exception as error:
                    refused.append(str(error))
                time.sleep(0.001)

        threading.Thread(target=write, daemon=True).start()

    assert published(harness, late, 50) == Counter(range(50))
    until = time.monotonic() + 10
    while not refused and time.monotonic() < until:
        time.sleep(0.01)
    assert refused


@contextmanager
def writing(harness: Any) -> Iterator[Callable[[str], Any]]:
    """One transaction of another process, as a task of this run has it."""
    if harness.backend == "postgres":
        import psycopg

        with psycopg.connect(harness.url) as client:
            yield lambda sql: client.execute(sql.encode())
        return
    from ematix_flow.backends.mysql.session import login_of, open_connection

    raw = open_connection(login_of(harness.connection))
    try:
        raw.begin()
        cursor = raw.cursor()
        yield cursor.execute
        raw.commit()
    finally:
        raw.close()
