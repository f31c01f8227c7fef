"""User modules of one test are gone for the next."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

NAME = "a_users_module"


@pytest.mark.parametrize("told", ["first", "second"])
def test_a_module_of_the_same_name_is_this_tests_own(tmp_path: Path, told: str) -> None:
    """As `flow` does in this process: the project's folder comes first in the search path, and stays there."""
    assert NAME not in sys.modules
    (tmp_path / f"{NAME}.py").write_text(f"TOLD = {told!r}\n")
    sys.path.insert(0, str(tmp_path))
    assert told == importlib.import_module(NAME).TOLD
