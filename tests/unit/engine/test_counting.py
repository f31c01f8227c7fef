"""What tasks count while rows pass: rows and bytes, each task once."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from ematix_flow.engine.ticker import SECONDS, ticking
from ematix_flow.families import progress
from ematix_flow.families.progress import Counted, Counter, counted, file_bytes, watching


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(range(rows), pa.int64())})


def test_batches_pass_unchanged_and_are_counted_with_their_bytes() -> None:
    with watching() as folder:
        given = [batch(1000), batch(500)]
        assert list(Counter.of(progress.STAGED).passing(given)) == given
        assert counted(folder, progress.STAGED) == Counted(1500, 1500 * 8)
        assert counted(folder, progress.READ) == Counted()


def test_an_attempt_that_is_repeated_counts_once() -> None:
    with watching() as folder:
        counter = Counter.of(progress.STAGED)
        half = counter.passing([batch(1000), batch(1000)])
        next(half)
        list(counter.passing([batch(1000), batch(1000)]))
        assert counted(folder, progress.STAGED).rows == 2000


def test_two_jobs_are_counted_apart_and_added_up() -> None:
    with watching() as folder:
        list(Counter.of(progress.STAGED).passing([batch(10)]))
        before = counted(folder, progress.STAGED)
        list(Counter.of(progress.STAGED).passing([batch(32)]))
        assert counted(folder, progress.STAGED).since(before) == Counted(32, 32 * 8)


def test_nobody_watching_means_that_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(list(Counter.of(progress.READ).passing([batch(1)]))) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_stops_no_task() -> None:
    with watching() as folder:
        counter = Counter.of(progress.READ)
    assert not folder.exists()
    assert len(list(counter.passing([batch(1), batch(2)]))) == 2


def test_a_tick_tells_rows_read_and_where_none_are_counted_rows_staged() -> None:
    heard: list[Counted] = []
    with watching() as folder:
        list(Counter.of(progress.STAGED).passing([batch(7)]))
        with ticking(folder, heard.append):
            list(Counter.of(progress.STAGED).passing([batch(20)]))
            time.sleep(SECONDS * 1.5)
            list(Counter.of(progress.READ).passing([batch(30)]))
            time.sleep(SECONDS)
    assert heard[0] == Counted(20, 160)  # not the 7 from before
    assert heard[-1] == Counted(30, 240)


def test_the_size_of_a_stage_is_that_of_its_data_files(tmp_path: Path) -> None:
    assert file_bytes(tmp_path / "elsewhere") is None
    for name, size in (("batch/part-0.parquet", 100), ("batch/p=1/part-1.parquet", 50), ("batch/_layout", 9),
                       ("batch/.part-0.parquet.crc", 9), ("facts.json", 9)):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
    assert file_bytes(tmp_path) == 150
