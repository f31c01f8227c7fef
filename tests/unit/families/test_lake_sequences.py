"""The last sequence of a writer in a lake: of what is committed, whatever was announced."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ematix_flow import ObjectStoreLocalConnection
from ematix_flow.backends.files.published_batches import batch_folder
from ematix_flow.backends.files.sink import FilesSink
from ematix_flow.families.lake.state import LakeLoad, WriterState

WRITER = "events/shop.events"
LAST = LakeLoad("one", 4, "shop", "events", published=True, counts={"read": 1})
NEXT = LakeLoad("two", 5, "shop", "events", counts={"read": 1})


@pytest.fixture
def sink(tmp_path: Path) -> FilesSink:
    return FilesSink(ObjectStoreLocalConnection("lake", path=str(tmp_path), format="parquet"))


def test_a_load_that_was_announced_and_never_committed_does_not_count(sink: FilesSink) -> None:
    sink.state.write(WRITER, WriterState(LAST, pending=NEXT))
    assert sink.last_sequence(WRITER) == 4
    sink.state.write(WRITER, WriterState(pending=NEXT))
    assert sink.last_sequence(WRITER) is None


def test_a_commit_that_a_dead_process_did_not_record_counts(sink: FilesSink, tmp_path: Path) -> None:
    sink.state.write(WRITER, WriterState(LAST, pending=NEXT))
    batch = batch_folder(tmp_path / "shop" / "events", NEXT.run_id)
    batch.mkdir(parents=True)
    (batch / "_load").write_text(json.dumps({"writer": WRITER, **asdict(NEXT)}))
    assert sink.last_sequence(WRITER) == 5


def test_a_recorded_commit_and_one_that_was_only_begun(sink: FilesSink) -> None:
    sink.state.write(WRITER, WriterState(LAST, pending=replace(NEXT, published=True)))
    assert sink.last_sequence(WRITER) == 5
    sink.state.write(WRITER, WriterState(LAST, pending=replace(NEXT, counts=None)))
    assert sink.last_sequence(WRITER) == 4
    assert sink.last_sequence("nobody") is None
