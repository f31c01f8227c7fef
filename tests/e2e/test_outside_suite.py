"""A backend of another package (tests/outside_backend) passes the contract suite, which finds it by its entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.full("it lasts as long as the whole suite for one system")
@pytest.mark.timeout(3600)
def test_an_outside_backend_keeps_every_promise_of_its_manifest() -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "tests/contract",
        "--full",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "outside",
    ]
    paths = [str(TESTS / "outside_backend"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(words, cwd=TESTS.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
