"""Fixtures of the tests of lakes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import DeltaLocalConnection, ObjectStoreLocalConnection
from ematix_flow.backends import delta as delta_backend
from ematix_flow.backends import files as files_backend
from tests.contract.lakes import Files, Lake


@pytest.fixture
def lake_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that does not outlive its test: lakes are large for a temporary folder."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def delta(spark: Any, lake_folder: Path) -> Lake:
    connection = DeltaLocalConnection("lake", path=str(lake_folder / "lake"))
    return Lake(delta_backend.backend, connection, lake_folder / "lake", spark)


@pytest.fixture
def files(spark: Any, lake_folder: Path) -> Files:
    def lake(file_format: str) -> Lake:
        root = lake_folder / file_format
        connection = ObjectStoreLocalConnection("lake", path=str(root), format=file_format)
        return Lake(files_backend.backend, connection, root, spark)

    return lake


@pytest.fixture(params=["delta", "parquet"])
def lake(request: pytest.FixtureRequest, delta: Lake, files: Files) -> Lake:
    return delta if request.param == "delta" else files(request.param)
