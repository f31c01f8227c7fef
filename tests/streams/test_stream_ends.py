"""How the query of a stream ends: what fails beside it leaves none running, and no failure is taken for a stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import Aggregation, ObjectStoreLocalConnection, Watermark, Window, run_streaming_pipeline
from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import FlowError, PlanError
from tests.harness.arrivals import put_whole
from tests.streams.conftest import JARS
from tests.streams.operated import shop

pytestmark = pytest.mark.usefixtures("every_jar", "homes")


@pytest.fixture
def incoming(tmp_path: Path) -> ObjectStoreLocalConnection:
    """A folder with one event."""
    (tmp_path / "incoming" / "events").mkdir(parents=True)
    line = '{"user_id": "ana", "_event_ts": "2026-03-02T12:00:01Z"}\n'
    put_whole(tmp_path / "incoming" / "events" / "1.jsonl", line)
    return ObjectStoreLocalConnection("incoming", path=str(tmp_path / "incoming"), format="json_lines")


@pytest.fixture
def queries() -> Iterator[Any]:
    """What Spark runs; nothing of it is left for other tests."""
    streams = spark_session(JARS).streams
    yield streams
    for query in streams.active:
        query.stop()


def test_a_failure_beside_the_query_leaves_no_query_running(
    incoming: ObjectStoreLocalConnection, tmp_path: Path, queries: Any
) -> None:
    (tmp_path / "checkpoint" / "ticks" / "not a file").mkdir(parents=True)  # no tick can be given beside it
    with pytest.raises(FlowError, match="not a file"):
        run_streaming_pipeline(
            name="per_minute", source=incoming, source_query="events", target=shop(tmp_path),
            target_table=("main", "per_minute"), checkpoint=str(tmp_path / "checkpoint"), restart_on_error=False,
            watermark=Watermark(source_idleness_ms=1),
            window=Window(kind="tumbling", duration_ms=1000, aggregations=[Aggregation(agg="count", as_="n")]),
        )  # fmt: skip
    assert [query.name for query in queries.active] == []


def test_a_failure_that_speaks_of_stopping_is_a_failure(incoming: ObjectStoreLocalConnection, tmp_path: Path) -> None:
    def drain() -> Any:
        return run_streaming_pipeline(
            name="events", source=incoming, source_query="events", target=shop(tmp_path),
            target_table=("main", "events"), checkpoint=str(tmp_path / "Stopping"), once=True,
        )  # fmt: skip

    assert drain().total_rows == 1
    for name in ("0", ".0.crc"):
        (tmp_path / "Stopping" / "spark" / "offsets" / name).unlink()
    (tmp_path / "Stopping" / "spark" / "offsets" / "0").write_text("damaged")
    with pytest.raises(PlanError, match="the checkpoint of events is damaged"):
        drain()
