"""A process with one session on the cluster: every line it reads names a load, every line it writes says where that is.

The rows come from a PostgreSQL that gives them slowly, in two parts, so that a worker can be killed in the middle.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ematix_flow import BigInt, DeltaLocalConnection, PostgresConnection, Text, ematix
from ematix_flow.engine.batch.pipeline_run import run
from ematix_flow.engine.batch.result import ProgressEvent
from ematix_flow.engine.session import session
from ematix_flow.foundation.errors import FlowError

SOURCE = PostgresConnection(name="slow", url=os.environ["LOADS_SOURCE"])
TARGETS = {
    "postgres": PostgresConnection(name="house", url=os.environ["LOADS_TARGET"]),
    "delta": DeltaLocalConnection(name="lake", path=os.environ["LOADS_LAKE"]),
}


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def load(system: str, lane: str, name: str) -> None:
    """Append to a table of its own."""

    class Numbers:
        n: BigInt
        text: Text

    table = ematix.table(schema="loads", name=f"numbers_{name}")(Numbers)
    decorate = ematix.pipeline(
        target=table, target_connection=TARGETS[system], source_connection=SOURCE, mode="append",
        name=f"{name}_to_{system}", force_lane=lane,
    )  # fmt: skip
    pipeline = decorate(lambda: "SELECT n, text FROM slow.numbers")

    def listen(event: ProgressEvent) -> None:
        if event.step == "stage" and event.rows:
            say(rows=event.rows)

    try:
        result = run(pipeline.spec, listener=listen)
    except FlowError as error:
        say(done=0, **error.to_dict())
        return
    partitions = session.spark_session().conf.get("spark.sql.shuffle.partitions")
    say(done=result.rows_inserted, lane=result.targets[0].lane, partitions=partitions)


if __name__ == "__main__":
    session.announce_jars({"delta"})
    for line in sys.stdin:
        load(*line.split())
