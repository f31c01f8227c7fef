"""docs/benchmarks.md, written from the kept results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.model import PRODUCT, SAIL, WARM
from bench.place import FOLDER
from bench.results import PER_QUERY, WALL

Result = Mapping[str, Any]
NOTES = FOLDER / "notes"
_SHOWN = 0.02  # seconds: steps below that are left out of a profile
_HEAD = """\
<!-- made by `make bench` from bench/results.json; change bench/, not this page -->

# Benchmarks

The product and its peers do the same work on the same machine, one after the other in alternating order. Every run is a fresh
process whose start counts. *Cold*: nothing runs before, the process starts its own Spark. *Warm*: `flow engine start` ran before the
clock, and every `flow run` is a new process that joins this engine; peers have nothing like it and are the same in both columns.
Figures are medians; the range is the fastest and the slowest run. A ratio is the peer's figure divided by ours: above 1 we are
faster. ✓ and ✗ stand at the figure or ratio that the goal is about; one without a mark has no goal.

![how many times as fast as the peer, with the goal as a mark](images/benchmarks.svg)

## Goals
"""
_REPEAT = """\
## How to repeat it

```sh
make bench                                                     # everything; about two hours
make bench ARGS="--missing"                                    # what has no result yet: go on after an interruption
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
- **Before a measured run** every contestant runs once without being counted, so that files are in memory for all, and what is made once
  (class archives, compiled Python) is there.
- **Results are compared** after every run: the number of rows and a checksum over all values that does not depend on the order, asked of
  the target's own client. A contestant with another result gets no figure.
- **A warm engine** has run the load of the case before, once for large loads and five times for tiny ones, so that the JVM has
  compiled what they use; "runs before" in the tables below are the seconds of these runs, the first one straight after the start.
- **CPU** is user plus system time of the contestant's whole process tree, JVM included; for a warm run also what all processes of the
  engine used between its start and its end. Database servers are not part of it. It is steadier than wall time on a machine
  that others use.
"""


def render(cases: Mapping[str, Result], *, notes: Path = NOTES) -> str:
    """The whole page."""
    parts = [
        _HEAD,
        *_goals(cases),
        "",
        *_short(cases, notes),
        *_all_measurements(cases),
        "",
        *_machine(cases),
        "",
        _REPEAT,
    ]
    return "\n".join(parts)


def _goals(cases: Mapping[str, Result]) -> Iterator[str]:
    yield "| case | goal | ours cold | ours warm | peer | ratio cold | ratio warm | CPU ratio | measured |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, case in cases.items():
        for goals in _rows_of_goals(case):
            yield _goal_row(name, case, goals)


def _rows_of_goals(case: Result) -> list[list[Result]]:
    """Goals against the same peer, one for a cold run and one for a warm run, are one row."""
    rows: list[list[Result]] = []
    for goal in case["goals"]:
        last = rows[-1][0] if rows else None
        is_pair = last is not None and (who_of(last), who_of(goal)) == (PRODUCT, WARM)
        if last is not None and is_pair and last["peer"] == goal["peer"] and last["at_least"] and goal["at_least"]:
            rows[-1].append(goal)
        else:
            rows.append([goal])
    return rows


def _goal_row(name: str, case: Result, goals: list[Result]) -> str:
    cold, warm = (_Column(case, goals, who) for who in _columns(case, goals))
    peer = case["contestants"].get(goals[0]["peer"])
    cells = [
        f"[{titled(case, goals[0])}](#{_anchor(name)})",
        _goal_text(case, goals),
        cold.figure,
        warm.figure,
        _figure(case, peer) if peer else "—",
        cold.ratio,
        warm.ratio,
        " / ".join(dict.fromkeys(text for text in (cold.cpu_ratio, warm.cpu_ratio) if text != "—")) or "—",
        measured(case),
    ]
    return f"| {' | '.join(cells)} |"


def _columns(case: Result, goals: list[Result]) -> tuple[str, str]:
    """The contestants of the columns cold and warm; where a start is not counted, the product itself is warm."""
    ours = PRODUCT if who_of(goals[0]) == WARM else who_of(goals[0])
    if case["warm"]:
        return "", ours
    return ours, WARM if ours == PRODUCT else ""


def _goal_text(case: Result, goals: list[Result]) -> str:
    both = WARM in case["contestants"] and who_of(goals[0]) in (PRODUCT, WARM)
    parts = [goal["text"] + ({PRODUCT: " cold", WARM: " warm"}[who_of(goal)] if both else "") for goal in goals]
    peer = case["contestants"].get(goals[0]["peer"])
    return ", ".join(parts) + (f" {peer['label']}" if peer else "")


class _Column:
    """Figure, ratio and CPU ratio of one of our contestants in a row of goals; dashes where there is none."""

    def __init__(self, case: Result, goals: list[Result], who: str) -> None:
        item = case["contestants"].get(who)
        own = next((goal for goal in goals if who_of(goal) == who), None)
        peer = case["contestants"].get(goals[0]["peer"])
        is_figure = own is not None and all(own.get(kind) is None for kind in ("ratio", "more", "times"))
        mark = "" if own is None or own["met"] is None else (" ✓" if own["met"] else " ✗ short of it")
        self.figure = _figure(case, item) + (mark if is_figure else "")
        self.ratio = "—"
        self.cpu_ratio = _times(_share(item, peer, "cpu"))
        if own is not None and not is_figure:
            self.ratio = verdict(own)
        elif own is not None and own["at_least"]:
            self.ratio = "not measured"
        elif own is None and goals[0]["at_least"]:
            self.ratio = _times(_share(item, peer, "figure"), at_least=bool(peer and peer["stopped"]))


def _share(item: Result | None, peer: Result | None, what: str) -> float | None:
    """How many times as much the peer needed; None where one of them has no figure."""
    own, other = (found and found[what] for found in (item, peer))
    if what == "cpu":
        own, other = own and own["median"], other and other["median"]
    return float(other) / float(own) if own and other else None


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
    if goal.get("times") is not None:
        shown = f"{goal['times']:.1f}× the time"
    if goal["met"] is None:
        return f"{shown}, the peer was stopped too early to tell" if shown else "not measured"
    if goal["met"]:
        return f"**{shown}** ✓" if shown else "✓"
    return f"**{shown}** ✗ short of it".strip() if shown else "✗ short of it"


def measured(case: Result) -> str:
    """When, at which scale, how often."""
    warm = ", start not counted" if case["warm"] else ""
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
        yield from _profiles(case)


def _profiles(case: Result) -> Iterator[str]:
    """Where the product's measured runs spent their time."""
    ours = [item for name, item in case["contestants"].items() if name in (PRODUCT, WARM) and item.get("profile")]
    for item in ours:
        steps = {name: seconds for name, seconds in item["profile"].items() if seconds >= _SHOWN}
        rest = item["wall"]["median"] - sum(item["profile"].values())
        told = ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in steps.items())
        yield f"- {item['label']}, seconds by step (medians): {told}; the process around the run {_seconds(rest)}"
    if ours:
        yield ""


def _all_measurements(cases: Mapping[str, Result]) -> Iterator[str]:
    yield "## All measurements\n"
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
    told = ["equal" if item["rows"] is not None else "as expected", item["note"]]
    if item["label"].endswith("warm engine") and item.get("warmups"):
        told.append(f"runs before: {', '.join(_seconds(wall) for wall in item['warmups'])} s")
    return "; ".join(text for text in told if text)


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
