"""The examples of streams do what their READMEs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import Example

pytestmark = pytest.mark.full


def test_readings_arrive_and_the_next_start_goes_on(tmp_path: Path) -> None:
    example = Example("stream", tmp_path)
    for files in (1, 2):
        example.python("more.py", "100")
        assert "100 rows in 1 batches" in example.flow("consume", "--module", "readings", "--once")
        found = example.rows("SELECT count(*), min(celsius), max(celsius) FROM main.readings")
        assert found == [(100 * files, 10.0, 20.6)]
    assert "readings" in example.flow("stream", "status", "readings", "--module", "readings")
    example.flow("consume", "--module", "windows", "per_minute", "--once")
    told = "SELECT readings, count(*), round(max(warmest), 1) FROM main.per_minute GROUP BY 1 ORDER BY 1"
    assert example.rows(told) == [(8, 5, 20.6), (12, 10, 20.6)]


def test_a_mirror_follows_its_source_chapter_by_chapter(tmp_path: Path) -> None:
    example = Example("cdc-debezium", tmp_path)

    def chapter() -> dict[int, tuple[Any, ...]]:
        example.python("change.py")
        example.flow("consume", "--module", "mirror", "--once")
        rows = example.rows("SELECT id, name, city, deleted_at IS NOT NULL FROM main.customers")
        return {row[0]: row[1:] for row in rows}

    first = {1: ("Ada", "London", False), 2: ("Blaise", "Paris", False), 3: ("Carl", "Göttingen", False)}
    assert chapter() == first
    assert chapter() == {**first, 1: ("Ada", "London", True), 2: ("Blaise", "Clermont", False)}
    assert chapter() == {**first, 1: ("Ada", "Turin", False), 2: ("Blaise", "Clermont", False)}
    assert "Clermont" in example.python("show.py")
