"""docs/benchmarks.md, written from the kept results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.model import PRODUCT, SAIL
from bench.place import FOLDER
from bench.results import PER_QUERY, WALL

Result = Mapping[str, Any]
NOTES = FOLDER / "notes"
_HEAD = """\
<!-- made by `make bench` from bench/results.json; change bench/, not this page -->

# Benchmarks

The product and its peers do the same work on the same machine, one after the other in alternating order. Every run is a fresh
process and its start counts, except where a row says warm. Figures are medians; the range is the fastest and the slowest run.
A ratio is the peer's figure divided by ours: above 1 we are faster.

![how many times as fast as the peer, with the goal as a mark](images/benchmarks.svg)

## Goals
"""
_REPEAT = """\
## How to repeat it

```sh
make bench                                                     # everything; about an hour
make bench ARGS="--only pg_to_parquet,start --repeats 5"       # some rows; the others stay as they are
make bench ARGS="--scale 0.01 --results /tmp/r.json --docs /tmp"   # a quick look that changes nothing here
make bench ARGS="--list"                                       # the cases and who takes part
```

- **Data**: TPC-H at scale factor 1 by `tpchgen-cli`: the first 2 million rows of `lineitem`, all 1.5 million `orders`. Servers
  are loaded before the clock starts. `--scale` makes all of it smaller.
- **Streams** read a Kafka topic of two partitions that holds 1 million small JSON messages before the clock starts. The *bare* job is
  Structured Streaming written by hand (`bench/peers/stock/kafka_to_*.py`), with the same columns declared.
- **Peers** are installed from pinned lists (`bench/peers/*/requirements.txt`), each into an environment of its own. *Stock PySpark* is
  the script one writes by hand (`bench/peers/stock`): default settings, one JDBC read or write, pinned drivers.
- **Before a measured run** everybody runs once without being counted, so that files are in memory for all, and what is made once
  (class archives, compiled Python) is there.
- **Results are compared** after every run: the number of rows and a checksum over all values that does not depend on the order, asked of
  the target's own client. A contestant with another result gets no figure.
- **CPU** is user plus system time of the contestant's whole process tree, JVM included; servers are not part of it. It is steadier
  than wall time on a machine that others use.
"""


def render(cases: Mapping[str, Result], *, notes: Path = NOTES) -> str:
    """The whole page."""
    parts = [_HEAD, *_goals(cases), "", *_short(cases, notes), *_everybody(cases), "", *_machine(cases), "", _REPEAT]
    return "\n".join(parts)


def _goals(cases: Mapping[str, Result]) -> Iterator[str]:
    yield "| case | goal | ours | the peer's | ratio | CPU ours / the peer's | CPU ratio | measured |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, case in cases.items():
        for goal in case["goals"]:
            yield _goal_row(name, case, goal)


def _goal_row(name: str, case: Result, goal: Result) -> str:
    ours, peer = case["contestants"].get(who_of(goal)), case["contestants"].get(goal["peer"])
    against = f" {peer['label']}" if peer else ""
    cpus = " / ".join(_cpu(item) for item in (ours, peer) if item)
    cells = [
        f"[{titled(case, goal)}](#{_anchor(name)})",
        f"{goal['text']}{against}",
        _figure(case, ours),
        _figure(case, peer) if peer else "—",
        verdict(goal),
        cpus,
        _times(goal["cpu_ratio"]),
        measured(case),
    ]
    return f"| {' | '.join(cells)} |"


def who_of(goal: Result) -> str:
    """The contestant whose goal it is."""
    return str(goal.get("who", PRODUCT))


def titled(case: Result, goal: Result) -> str:
    """The case, with the engine where it is another one than Spark."""
    return f"{case['title']}, engine {SAIL}" if who_of(goal) == SAIL else str(case["title"])


def verdict(goal: Result) -> str:
    """The ratio, marked when it falls short or is not known."""
    shown = _times(goal["ratio"], at_least=bool(goal.get("is_lower_bound"))) if goal["ratio"] is not None else ""
    if goal.get("more") is not None:
        shown = f"{goal['more']:+.0f}"
    if goal["met"] is None:
        return f"{shown}, the peer was stopped too early to tell" if shown else "not measured"
    if goal["met"]:
        return f"**{shown}** ✓" if shown else "✓"
    return f"**{shown}** ✗ short of it".strip() if shown else "✗ short of it"


def measured(case: Result) -> str:
    """When, at which scale, how often."""
    warm = ", warm" if case["warm"] else ""
    times = "1 run" if case["repeats"] == 1 else f"{case['repeats']} runs"
    return f"{case['date']}, scale {case['scale']:g}, {times}{warm}"


def _anchor(name: str) -> str:
    """Where the page tells more about a case."""
    return name.replace("_", "-")


def _short(cases: Mapping[str, Result], notes: Path) -> Iterator[str]:
    """What falls short, with the explanation that bench/notes/<case>.md gives."""
    short = {name: case for name, case in cases.items() if any(goal["met"] is False for goal in case["goals"])}
    told = {name: notes / f"{name}.md" for name in cases}
    if not short and not any(file.is_file() for file in told.values()):
        return
    yield "## Rows that fall short, and why\n"
    for name, case in cases.items():
        if name not in short and not told[name].is_file():
            continue
        text = told[name].read_text(encoding="utf-8").strip() if told[name].is_file() else "Not looked into yet."
        yield f"**{case['title']}.** {text}\n"


def _everybody(cases: Mapping[str, Result]) -> Iterator[str]:
    yield "## Everybody\n"
    for name, case in cases.items():
        rows = f", {case['rows']:,} rows" if case["rows"] else ""
        yield f"### {_anchor(name)}\n"
        yield f"{case['title']}{rows}; {measured(case)}.{' ' + case['note'] if case['note'] else ''}\n"
        yield "| who | version | wall | CPU | largest process | result |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for item in case["contestants"].values():
            yield _contestant_row(item)
        yield ""
        yield from _steps(case)


def _contestant_row(item: Result) -> str:
    memory = f"{item['peak_mb']:,} MB" if item["peak_mb"] else "—"
    cells = [item["label"], item["version"], _wall(item), _cpu(item, spread=True), memory, _result(item)]
    return f"| {' | '.join(cells)} |"


def _result(item: Result) -> str:
    if item["problem"]:
        return f"{'not counted' if item['available'] else 'not run'}: {_in_a_cell(item['problem'])}"
    if item["stopped"]:
        return "stopped before it was done; the time is a lower bound"
    return ("equal" if item["rows"] is not None else "as expected") + (f"; {item['note']}" if item["note"] else "")


def _steps(case: Result) -> Iterator[str]:
    """The queries of a case whose contestants time themselves."""
    timed = [item for item in case["contestants"].values() if item["steps"]]
    if not timed:
        return
    yield f"| {_unit(case) or 'query, seconds'} | {' | '.join(item['label'] for item in timed)} |"
    yield f"| --- |{' --- |' * len(timed)}"
    for step in timed[0]["steps"]:
        yield f"| {step} | {' | '.join(format(item['steps'][step], '.2f') for item in timed)} |"
    if not _unit(case):
        yield f"| geometric mean | {' | '.join(format(item['figure'], '.2f') for item in timed)} |"
    yield ""


def _unit(case: Result) -> str:
    """What a case counts, where it is not seconds."""
    return "" if case["unit"] in (PER_QUERY, WALL) else str(case["unit"])


def _machine(cases: Mapping[str, Result]) -> Iterator[str]:
    yield "## Machine\n"
    known: dict[str, list[str]] = {}
    for name, case in cases.items():
        facts = case["machine"]
        text = (
            f"{facts['cores']} cores of {facts['cpu']}, {facts['memory']} memory, {facts['system']}, "
            f"Python {facts['python']}, Java {facts['java']}"
        )
        known.setdefault(text, []).append(name)
    for text, names in known.items():
        yield f"- {text}" + (f" ({', '.join(names)})" if len(known) > 1 else "")
    loads = [
        item["load"] for case in cases.values() for item in case["contestants"].values() if item["load"] is not None
    ]
    if loads:
        yield f"- load average of the machine before a run: {min(loads):.1f} to {max(loads):.1f}"


def _figure(case: Result, item: Result | None) -> str:
    if not item or item["figure"] is None:
        return "—"
    if item["steps"]:
        return f"{item['figure']:.2f} {_unit(case) or 's a query'}"
    return _wall(item)


def _wall(item: Result) -> str:
    found = item["wall"]
    if not found:
        return "—"
    if item["stopped"]:
        return f"> {found['median']:.0f} s"
    return f"{_seconds(found['median'])} s ({_seconds(found['min'])}–{_seconds(found['max'])})"


def _cpu(item: Result, *, spread: bool = False) -> str:
    found = item["cpu"]
    if not found:
        return "—"
    shown = f"{_seconds(found['median'])} s"
    return f"{shown} ({_seconds(found['min'])}–{_seconds(found['max'])})" if spread else shown


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _times(ratio: float | None, *, at_least: bool = False) -> str:
    if ratio is None:
        return "—"
    return f"{'> ' if at_least else ''}{ratio:.2f}×" if ratio < 10 else f"{'> ' if at_least else ''}{ratio:.0f}×"


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")[:200]
