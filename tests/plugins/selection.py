"""Which tests run, and in which order: everything but `full` unless it is asked for, and files with long tests first."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import Any

import pytest

from tests import full

ANY_SEED = "any"
_SEED = "shuffle"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options: what runs, and in which order."""
    group = parser.getgroup("ematix-flow")
    group.addoption("--full", action="store_true", help="also run the tests marked `full` (as CONTRACT_FULL=1 does)")
    group.addoption(
        "--shuffle",
        nargs="?",
        const=ANY_SEED,
        metavar="SEED",
        help="run files, and tests within a file, in random order",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle both before a test module is imported; workers are handed the seed, because they read the options anew."""
    if config.option.full:
        os.environ[full.VARIABLE] = "1"
        full.IS_FULL = True
    if hasattr(config, "workerinput"):
        config.option.shuffle = config.workerinput[_SEED]
    if config.option.shuffle == ANY_SEED:
        config.option.shuffle = str(random.SystemRandom().randrange(10**6))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker the seed: all of them must collect the same tests in the same order."""
    node.workerinput[_SEED] = node.config.option.shuffle


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is left out, and how to repeat an order."""
    chosen = "all of them" if _wants_full(config) else "all but those marked full (--full runs them as well)"
    seed = config.option.shuffle
    return [f"tests: {chosen}", *([f"order: --shuffle {seed}"] if seed else [])]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `full`, and put the rest in order."""
    if not _wants_full(config):
        left_out = [item for item in items if item.get_closest_marker("full")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("full")]
    if config.option.shuffle:
        _shuffle(items, config.option.shuffle)
    _long_files_first(items)


def _wants_full(config: pytest.Config) -> bool:
    """Whether `full` tests run: asked for, or chosen by an expression over markers."""
    return full.IS_FULL or "full" in (config.option.markexpr or "")


def _shuffle(items: list[pytest.Item], seed: str) -> None:
    """Files in random order, tests in random order within their file."""
    chance = random.Random(seed)
    files = sorted({_file(item) for item in items})
    chance.shuffle(files)
    chance.shuffle(items)
    items.sort(key=lambda item: files.index(_file(item)))


def _long_files_first(items: list[pytest.Item]) -> None:
    """Begun last, a file with a long test would keep one worker busy while the other one has nothing to do."""
    long = _files(item for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: _file(item) not in long)


def _files(items: Iterable[pytest.Item]) -> set[str]:
    return {_file(item) for item in items}


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
