"""Micro-batches that wait for a target: each target has a folder of its own, also those of an earlier version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ematix_flow.engine.session.session import spark_session
from ematix_flow.foundation.errors import RunFailed
from ematix_flow.streaming.runtime.backlog import Backlog

pytestmark = pytest.mark.usefixtures("every_jar")
AWAY = RunFailed("it is away")


def target(name: str) -> Any:
    return SimpleNamespace(name=name)


def rows(*numbers: int) -> Any:
    return spark_session({"delta", "s3a", "kafka", "avro"}).createDataFrame([(n,) for n in numbers], "n BIGINT")


def test_targets_whose_names_look_alike_do_not_share_what_waits_for_them(tmp_path: Path) -> None:
    backlog, names = Backlog(tmp_path), ["a/b", "a_b", "100% & more", "ä.b"]
    for number, name in enumerate(names):
        backlog.add(target(name), 7, rows(number), AWAY)
    backlog.done(target("a/b"), 7)
    assert backlog.waiting(target("a/b")) == []
    assert [[row.n for row in backlog.read(target(name), 7).collect()] for name in names[1:]] == [[1], [2], [3]]
    assert backlog.counted([*names[:3], "others"]) == {"a_b": 1, "100% & more": 1, "%C3%A4.b": 1}


@pytest.mark.full
def test_a_folder_of_an_earlier_version_is_taken_over_where_it_can_only_be_of_one_target(tmp_path: Path) -> None:
    backlog = Backlog(tmp_path)
    backlog.add(target("raw_orders"), 7, rows(1), AWAY)  # as it was called then
    assert backlog.counted(["raw/orders", "main.orders"]) == {"raw/orders": 1}
    backlog.adopt(["raw/orders", "main.orders"])
    assert [row.n for row in backlog.read(target("raw/orders"), 7).collect()] == [1]
    assert backlog.counted(["raw/orders"]) == {"raw/orders": 1}
    backlog.add(target("a_b"), 8, rows(2), AWAY)
    backlog.adopt(["a/b", "a_b"])
    assert (backlog.waiting(target("a/b")), backlog.waiting(target("a_b"))) == ([], [8])
