"""Processor seconds of a process tree: living descendants, and dead ones that somebody waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ematix_flow.engine.batch.cost import CostMeter
from ematix_flow.foundation.processes import cpu_seconds

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {BURN.format(seconds=0.3)!r} + "print(1, flush=True)\\ninput()"],
                         stdin=subprocess.PIPE)
input()
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are told by /proc: use Linux")


@pytest.fixture
def parent_of_a_busy_child() -> Iterator[subprocess.Popen[str]]:
    """A process that does nothing, whose child has used 0.3 s and lives on."""
    parent = subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "1\n"
    yield parent
    parent.communicate("\n", timeout=20)


def test_living_descendants_count(parent_of_a_busy_child: subprocess.Popen[str]) -> None:
    ours = cpu_seconds([os.getpid(), parent_of_a_busy_child.pid])
    assert ours is not None
    assert ours[parent_of_a_busy_child.pid] >= 0.28
    assert ours[os.getpid()] >= ours[parent_of_a_busy_child.pid]


def test_a_child_that_has_ended_still_counts() -> None:
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    after = cpu_seconds([os.getpid()])
    assert before is not None
    assert after is not None
    assert after[os.getpid()] - before[os.getpid()] >= 0.28


def test_a_process_that_is_not_there_has_no_figure() -> None:
    assert cpu_seconds([2**30]) == {}


def test_a_run_without_spark_costs_what_this_process_and_its_children_use() -> None:
    meter = CostMeter("load_orders")
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.3)], check=True)
    cost = meter.cost()
    assert cost.session is None
    assert cost.cpu_seconds is not None
    assert 0.28 <= cost.cpu_seconds < 5
    assert meter.cost() is cost
