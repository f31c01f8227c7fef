"""No test sees another one's modules: what is imported from a temporary folder or from an example is forgotten again."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True, scope="module")
def _modules_of_this_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what the fixtures of a file imported."""
    yield
    _forget_user_modules(tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def _modules_of_this_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what the test imported; what was there before it belongs to its file."""
    before = {*sys.modules, *sys.path}
    yield
    _forget_user_modules(tmp_path_factory.getbasetemp(), keep=before)


def _forget_user_modules(temporary: Path, keep: set[str] | frozenset[str] = frozenset()) -> None:
    """Take modules and search paths of users' projects away; a second `pipelines` would find the first one instead."""
    places = tuple(f"{place}/" for place in (temporary.resolve(), temporary, EXAMPLES))
    for name, module in list(sys.modules.items()):
        if name not in keep and str(getattr(module, "__file__", None) or "").startswith(places):
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if entry in keep or not f"{entry}/".startswith(places)]
    for entry in [entry for entry in sys.path_importer_cache if entry.startswith(places)]:
        del sys.path_importer_cache[entry]


def pytest_configure() -> None:
    """Let tests interrupt processes: a run in the background of a shell ignores SIGINT, and so would all it starts."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
