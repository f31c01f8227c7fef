"""The catalog: one backend is found without importing the others, and by its kind."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from ematix_flow import backends
from ematix_flow.backends import catalog
from ematix_flow.declare.connections import KINDS

OUTSIDE = Path(__file__).parents[2] / "outside_backend"


def test_the_table_has_every_folder_and_every_kind_of_its_backend() -> None:
    folders = {item.name for item in pkgutil.iter_modules(backends.__path__) if item.ispkg}
    assert set(catalog._FOLDERS.values()) == folders
    for kind in catalog._FOLDERS:
        assert kind in [item.kind for item in catalog.backend_of_kind(kind).connection_types]
        assert kind in KINDS


@pytest.mark.parametrize("kind", catalog._FOLDERS)
def test_looking_one_backend_up_imports_only_that_one(kind: str) -> None:
    program = (
        "import sys; from ematix_flow.backends.catalog import backend_of_kind; "
        f"backend_of_kind({kind!r}); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    folder = catalog._FOLDERS[kind]
    # Both kinds of Delta, and both kinds of files, are one code.
    allowed = {"catalog", folder, folder.removesuffix("_s3")}
    assert {name.split(".")[2] for name in loaded if name.startswith("ematix_flow.backends.")} <= allowed


def test_an_outside_backend_is_found_by_the_name_of_its_entry_point() -> None:
    program = (
        "import sys; from ematix_flow import ematix; from ematix_flow.backends.catalog import backend_for\n"
        "@ematix.connection\n"
        "class shop:\n"
        "    kind = 'outside'\n"
        "    file = 'shop.out'\n"
        "print(backend_for(shop).title, type(shop).__name__, 'ematix_flow.backends.postgres' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(OUTSIDE)}, check=True
    )
    assert answer.stdout.split() == ["Outside", "OutsideConnection", "False"]
