"""kill -9 of streams that read lakes: what arrives in between is in the target once, whatever point the process died at."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.harness.buckets import TestBucket
from tests.services.object_stores import PLACE
from tests.streams.operated import ended, flow

POINTS = ("after_read", "mid_stage", "before_publish", "after_publish", "after_checkpoint")


@dataclass(frozen=True)
class Watched:
    """A stream in a file, how rows come to its source, and what its target holds."""

    folder: Path
    arrive: Callable[[int], None]
    found: Callable[[], list[int]]

    def consume(self, **variables: str) -> tuple[int, str, str]:
        """`flow consume --once` in a process of its own."""
        own = {"EMATIX_FLOW_RUN_LOG_PATH": str(self.folder / "run_log.db"), "EMATIX_FLOW_ENGINE": "local"}
        return ended(flow("consume", "stream.toml", "--once", folder=self.folder, **own, **variables), 400)


def in_a_bucket(folder: Path, request: pytest.FixtureRequest) -> Watched:
    """Objects into a Delta table, and the checkpoint beside them: nothing is on this machine."""
    there = TestBucket.at(request.getfixturevalue("s3_url"), "kills")
    login = "\n".join(f'{name} = "{value}"' for name, value in there.fields.items() if name != "prefix")
    (folder / "stream.toml").write_text(
        f"""
pipeline_name = "numbers"
source_query = "raw/numbers/"
checkpoint = "s3://{PLACE}/{there.prefix}/checkpoints/numbers"

[source]
kind = "object_store_s3"
format = "json_lines"
prefix = "{there.prefix}"
{login}

[target]
kind = "delta_s3"
prefix = "{there.prefix}/lake"
{login}

[target.table]
schema = "raw"
name = "numbers"
"""
    )

    def found() -> list[int]:
        address = f"s3://{PLACE}/{there.prefix}/lake/raw/numbers"
        table = DeltaTable(address, storage_options=there.storage_options)
        return [int(number) for number in table.to_pyarrow_table(columns=["n"]).column("n").to_pylist()]

    def arrive(number: int) -> None:
        lines = [json.dumps({"n": number * 10 + digit}) for digit in range(10)]
        there.put(f"raw/numbers/{number}.jsonl", "\n".join(lines).encode())

    return Watched(folder, arrive, found)


def from_delta(folder: Path, _: pytest.FixtureRequest) -> Watched:
    """New commits of one Delta table into another."""
    (folder / "stream.toml").write_text(
        f"""
pipeline_name = "numbers"
source_query = "raw.numbers"
checkpoint = "{folder}/checkpoint"

[source]
kind = "delta_local"
path = "{folder}/source"

[target]
kind = "delta_local"
path = "{folder}/lake"

[target.table]
schema = "raw"
name = "numbers"
"""
    )

    def found() -> list[int]:
        table = DeltaTable(str(folder / "lake" / "raw" / "numbers")).to_pyarrow_table(columns=["n"])
        return [int(number) for number in table.column("n").to_pylist()]

    def arrive(number: int) -> None:
        rows = pa.table({"n": [number * 10 + digit for digit in range(10)]})
        write_deltalake(str(folder / "source" / "raw" / "numbers"), rows, mode="append")

    return Watched(folder, arrive, found)


@pytest.mark.full("many processes, each with an engine of its own")
@pytest.mark.parametrize("source", [in_a_bucket, from_delta])
def test_a_stream_killed_at_any_point_goes_on_without_loss_and_without_rows_twice(
    source: Callable[[Path, pytest.FixtureRequest], Watched], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stream = source(tmp_path, request)
    for number, point in enumerate(POINTS):
        stream.arrive(number)
        code, out, err = stream.consume(EMATIX_FLOW_FAULT=point)
        assert code == -signal.SIGKILL, f"{point}: {out}\n{err}"
    stream.arrive(len(POINTS))
    code, out, err = stream.consume()
    assert code == 0, f"{out}\n{err}"
    assert Counter(stream.found()) == Counter(range(10 * (len(POINTS) + 1)))
    if source is in_a_bucket:
        assert not (tmp_path / "s3:").exists()
