"""Which promises of docs/guarantees.md a test run has proven: `--promises` ends it with a table.

A test says what it proves by the marker `proves`; fields in braces are filled in from its parameters, `{backend}` from the
system under contract. A promise is proven when a test of it passed and none failed or was skipped.
"""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import HARNESSES

ROOT = Path(__file__).resolve().parents[2]
PROPERTY = "proves"
BEYOND = "Beyond the table"
_outcomes: dict[str, set[str]] = defaultdict(set)


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option: the table."""
    parser.getgroup("ematix-flow").addoption(
        "--promises", action="store_true", help="end with a table of the promises that the run has proven"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every test carry its promises along: they reach the process that reports as properties."""
    named = _named_proofs()
    for item in items:
        item.user_properties += [(PROPERTY, promise) for promise in _promises_of(item, named)]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended; one that passed does so in its call."""
    if report.passed and report.when != "call":
        return
    for name, promise in report.user_properties:
        if name == PROPERTY:
            _outcomes[str(promise)].add("skipped" if hasattr(report, "wasxfail") else report.outcome)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write the table, part by part."""
    if config.option.promises:
        terminalreporter.section("promises of docs/guarantees.md")
        for line in table(all_promises(), _outcomes):
            terminalreporter.write_line(line)


def table(promises: dict[str, list[str]], outcomes: dict[str, set[str]]) -> Iterator[str]:
    """Yield the lines of the table: a system's promises in one line, the others one by one, and how many are left."""
    standing = {promise: status(outcomes.get(promise, set())) for part in promises.values() for promise in part}
    for part, names in promises.items():
        proven = sum(standing[name] == "proven" for name in names)
        yield f"{part}: {proven} of {len(names)} proven"
        rows: dict[str, list[str]] = defaultdict(list)
        for name in names:
            row, cell = _PLACES[part](name)
            rows[row].append(f"{_MARKS[standing[name]]} {cell}")
        yield from (_line(row, cells) for row, cells in rows.items())
    counted = Counter(standing.values())
    yield ", ".join(f"{_MARKS[word]} {word}: {counted[word]}" for word in _MARKS)


def _line(row: str, cells: list[str]) -> str:
    """Return the line of a system, or of a sentence that stands for itself."""
    return f"  {cells[0]}" if len(cells) == 1 else f"  {row:<9} {'  '.join(cells)}"


def status(seen: set[str]) -> str:
    """Return what the outcomes of a promise's tests say of it."""
    if "failed" in seen:
        return "failed"
    if "passed" in seen:
        return "proven in part" if "skipped" in seen else "proven"
    return "not proven"


_MARKS = {"proven": "✓", "proven in part": "◐", "failed": "✗", "not proven": "–"}
_PLACES: dict[str, Callable[[str], tuple[str, str]]] = {
    "Loads": lambda name: (name.partition(": ")[0], name.partition(": ")[2]),
    "Streams": lambda name: (name.partition(" → ")[0], "→ " + name.partition(" → ")[2].partition(":")[0]),
    "Words": lambda name: (name, name),
    BEYOND: lambda name: (name, name),
}


def all_promises() -> dict[str, list[str]]:
    """Return what docs/guarantees.md promises, part by part, read from what the page is made of."""
    from ematix_flow.backends.catalog import all_backends
    from ematix_flow.contract.delivery import short, stream_delivery

    backends = list(all_backends())
    tables = [backend for backend in backends if backend.batch_sink is not None]
    sources = [backend for backend in backends if backend.stream_source is not None]
    targets = [backend for backend in backends if backend.batch_sink is not None or backend.broker_sink is not None]
    proofs = _page()
    return {
        "Loads": [
            f"{backend.name}: {word}"
            for backend in tables
            for word in [
                *(mode for mode in ("append", "truncate", "merge", "scd2") if mode in backend.strategies),
                "once",
            ]
        ],
        "Streams": [
            f"{source.name} → {target.name}: {short(stream_delivery(source, target))}"
            for source in sources
            for target in targets
        ],
        "Words": [f"{word}: {shows}" for word, tests in proofs.PROOFS.items() for _, shows in tests],
        BEYOND: list(proofs.PROMISES),
    }


def _promises_of(item: pytest.Item, named: dict[str, list[str]]) -> Iterator[str]:
    """Yield what the test proves by its markers, and what docs/guarantees.md says of it by name."""
    params = getattr(item, "callspec", None)
    values = {name: str(value) for name, value in params.params.items()} if params else {}
    if values.get("harness") in HARNESSES:
        values["backend"] = HARNESSES[values["harness"]].backend
    for marker in item.iter_markers("proves"):
        yield from (promise.format(**values) for promise in marker.args)
    yield from named.get(item.nodeid.partition("[")[0], [])


def _named_proofs() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for word, tests in _page().PROOFS.items():
        for test, shows in tests:
            found[test].append(f"{word}: {shows}")
    return found


def _page() -> Any:
    """Return the module behind the page's last parts."""
    spec = importlib.util.spec_from_file_location("proofs", ROOT / "scripts" / "proofs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
