"""One load of many rows by one strategy, timed without the start of the process and without what is there before."""

import json
import os
from pathlib import Path
from typing import Annotated

from ematix_flow import (
    BigInt,
    Date,
    DeltaLocalConnection,
    Numeric,
    ObjectStoreLocalConnection,
    PostgresConnection,
    Text,
    ematix,
    pk,
    register_connection,
)

MODE, KIND = os.environ["BENCH_MODE"], os.environ["BENCH_KIND"]
ROWS = os.environ["BENCH_ROWS_LESS" if os.environ["BENCH_SIZE"].startswith("0.5") else "BENCH_ROWS_MORE"]
register_connection(ObjectStoreLocalConnection(name="origin", path=os.environ["BENCH_LAKE"], format="parquet"))
if KIND == "postgres":
    register_connection(PostgresConnection(name="goal", url="${BENCH_PG}"))
else:
    register_connection(DeltaLocalConnection(name="goal", path=os.environ["BENCH_DELTA"]))


class Orders:
    o_orderkey: Annotated[BigInt, pk()]
    o_custkey: BigInt
    o_status: Text
    o_totalprice: Numeric[15, 2]
    o_orderdate: Date
    o_comment: Text


def load(source: str, target: str) -> float:
    """Seconds of one run, as the product itself counts them."""
    table = ematix.table(schema="scaled", name=target)(type("Scaled", (), {"__annotations__": Orders.__annotations__}))

    @ematix.pipeline(
        target=table, source_connection="origin", target_connection="goal", mode=MODE, name=f"load_{source}"
    )
    def move() -> str:
        return f"SELECT * FROM scaled.{source}"

    return float(move.sync().seconds)


load("warm", "warm")  # the session, its workers and its compiled code: the same for both sizes
if MODE != "append":
    load(f"before_{ROWS}", f"{MODE}_{ROWS}")
seconds = load(f"after_{ROWS}", f"{MODE}_{ROWS}")
Path(os.environ["BENCH_RUN"], "steps.json").write_text(json.dumps({MODE: seconds}))
