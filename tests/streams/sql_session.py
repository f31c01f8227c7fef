"""What the tests of SQL over micro-batches share: a session, statements, and somebody who takes bad rows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from typing import Any

import pytest

from ematix_flow.declare.streams.spec import DLQ, FAIL, BadRows, StreamSpec
from ematix_flow.declare.udfs import functions_of
from ematix_flow.engine.session.session import spark_session
from ematix_flow.engine.sql.statement import Statement
from ematix_flow.streaming.runtime.transform import Transform


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The engine's own session; its log stays out of the person's folders."""
    patch = pytest.MonkeyPatch()
    patch.setenv("EMATIX_FLOW_LOGS_DIR", str(tmp_path_factory.mktemp("logs")))
    session = spark_session()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    patch.undo()


@pytest.fixture
def open_until() -> Iterator[ExitStack]:
    """The end of a micro-batch."""
    with ExitStack() as stack:
        yield stack


def statement(sql: str, *functions: Any, in_parts: bool = True, **fields: Any) -> Statement:
    """A statement with functions of both kinds."""
    aggregates = [item for item in functions if hasattr(item, "state")]
    known = functions_of([item for item in functions if item not in aggregates], aggregates)
    return Statement(sql, functions=known, aggregates_in_parts=in_parts, **fields)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a frame as sorted tuples; NULL sorts first."""
    return sorted(
        (tuple(row) for row in frame.collect()), key=lambda row: [(item is not None, str(item)) for item in row]
    )


def answers(spark: Any, frame: Any, sql: str, *functions: Any, **fields: Any) -> list[tuple[Any, ...]]:
    """What a statement gives for these rows."""
    with ExitStack() as open_until:
        return rows(statement(sql, *functions, **fields).frame(frame, {}, open_until))


def explained(frame: Any) -> str:
    """Spark's plans for a frame, as it prints them."""
    with redirect_stdout(io.StringIO()) as printed:
        frame.explain(extended=True)
    return printed.getvalue()


def transform(sql: str | None, *, policy: str = FAIL, **fields: Any) -> Transform:
    """The transform of a stream that has nothing else."""
    spec = StreamSpec("orders", (), (), transform_sql=sql, bad_rows=BadRows(policy=policy), **fields)
    return Transform(spec)


class Aside:
    """Keeps bad rows with what is wrong with them, as the dead letters of a stream do."""

    def __init__(self) -> None:
        self.bad: list[dict[str, Any]] = []

    def good(self, made: Transform, frame: Any, open_until: ExitStack) -> Any:
        """The rows of a transform, without those that it fails on."""
        found, failed = made.apply_row_by_row(frame, open_until)
        if failed is not None:
            self.bad += [
                {**row.asDict(recursive=True), "wrong": row[failed.column], "stage": failed.stage}
                for row in failed.rows.collect()
            ]
        return found


__all__ = ["DLQ", "Aside", "answers", "explained", "open_until", "rows", "spark", "statement", "transform"]
