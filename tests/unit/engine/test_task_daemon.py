"""The path of Python tasks: without Spark's archives where pyspark is installed, and untouched where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest

from ematix_flow.engine.session.task_daemon import without_archives

INSTALLED = str(Path(pyspark.__file__).resolve().parents[1])
ARCHIVES = ["/spark/jars/spark-core.jar", "/spark/python/lib/pyspark.zip"]


def test_archives_leave_the_path_where_pyspark_is_installed() -> None:
    before = list(sys.path)
    assert without_archives([*ARCHIVES, INSTALLED]) == [INSTALLED]
    assert sys.path == before


def test_archives_stay_where_pyspark_is_found_in_them_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "py4j"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    assert without_archives([*ARCHIVES, str(tmp_path)]) == [*ARCHIVES, str(tmp_path)]
