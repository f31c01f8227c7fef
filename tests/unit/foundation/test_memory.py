"""The memory of a container is its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ematix_flow.foundation import memory


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/app/job", "app/memory.max"),
        ("0::/", "memory.max"),
        ("4:memory:/docker/abc", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_container_is_found(tmp_path: Path, line: str, file: str) -> None:
    own = tmp_path / "own"
    own.write_text(f"9:cpu:/\n{line}\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("2147483648\n")
    found = [memory._limit(place) for place in memory._limit_files(tmp_path, own)]
    assert [limit for limit in found if limit is not None] == [2 * 1024**3]


def test_no_limit_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._limit(tmp_path / "memory.max") is None
    assert 2**28 < (memory.usable_memory() or 0) < 2**50
