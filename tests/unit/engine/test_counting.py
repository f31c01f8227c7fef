"""What tasks count while rows pass: rows and bytes, each task once."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from ematix_flow.dataplane import progress
from ematix_flow.dataplane.progress import TaskCounter, TaskCounts, count_rows, file_bytes, total_counts
from ematix_flow.engine.batch.stage_progress import SECONDS, report_progress


def batch(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(range(rows), pa.int64())})


def test_batches_pass_unchanged_and_are_counted_with_their_bytes() -> None:
    with count_rows() as folder:
        given = [batch(1000), batch(500)]
        assert list(TaskCounter.of(progress.STAGED).passing(given)) == given
        assert total_counts(folder, progress.STAGED) == TaskCounts(1500, 1500 * 8)
        assert total_counts(folder, progress.READ) == TaskCounts()


def test_an_attempt_that_is_repeated_counts_once() -> None:
    with count_rows() as folder:
        counter = TaskCounter.of(progress.STAGED)
        half = counter.passing([batch(1000), batch(1000)])
        next(half)
        list(counter.passing([batch(1000), batch(1000)]))
        assert total_counts(folder, progress.STAGED).rows == 2000


def test_two_jobs_are_counted_apart_and_added_up() -> None:
    with count_rows() as folder:
        list(TaskCounter.of(progress.STAGED).passing([batch(10)]))
        before = total_counts(folder, progress.STAGED)
        list(TaskCounter.of(progress.STAGED).passing([batch(32)]))
        assert total_counts(folder, progress.STAGED).since(before) == TaskCounts(32, 32 * 8)


def test_without_observers_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(list(TaskCounter.of(progress.READ).passing([batch(1)]))) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_stops_no_task() -> None:
    with count_rows() as folder:
        counter = TaskCounter.of(progress.READ)
    assert not folder.exists()
    assert len(list(counter.passing([batch(1), batch(2)]))) == 2


def test_a_tick_tells_rows_read_and_where_none_are_counted_rows_staged() -> None:
    heard: list[TaskCounts] = []
    with count_rows() as folder:
        list(TaskCounter.of(progress.STAGED).passing([batch(7)]))
        with report_progress(folder, heard.append):
            list(TaskCounter.of(progress.STAGED).passing([batch(20)]))
            time.sleep(SECONDS * 1.5)
            list(TaskCounter.of(progress.READ).passing([batch(30)]))
            time.sleep(SECONDS)
    assert heard[0] == TaskCounts(20, 160)  # not the 7 from before
    assert heard[-1] == TaskCounts(30, 240)


def test_the_size_of_a_stage_is_that_of_its_data_files(tmp_path: Path) -> None:
    assert file_bytes(tmp_path / "elsewhere") is None
    for name, size in (("batch/part-0.parquet", 100), ("batch/p=1/part-1.parquet", 50), ("batch/_layout", 9),
                       ("batch/.part-0.parquet.crc", 9), ("facts.json", 9)):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
    assert file_bytes(tmp_path) == 150
