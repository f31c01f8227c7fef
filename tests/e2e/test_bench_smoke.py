"""The benchmark harness works: cheap cases at a tiny size, nothing about how fast anything is."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from bench import page, picture, results
from bench.cases import CASES
from bench.cases.tpch import too_large
from bench.machine import Machine
from bench.measure import Stand
from bench.model import Case, Run
from bench.place import Place
from bench.runner import Options, Outcome

from ematix_flow.engine.session.jars import read_lock

ROOT = Path(__file__).resolve().parents[2]
SCALE = "0.001"
BURN = "import time\nwhile time.process_time() < 0.5: pass"
measuring = pytest.mark.full("three contestants start Spark each")
pytestmark = pytest.mark.timeout(600)  # a Spark start of a peer, on a machine that may be busy


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place of its own, with orders that look like those of TPC-H: nothing has to be fetched."""
    import duckdb

    folder = tmp_path_factory.mktemp("bench")
    (folder / "cache" / "tpch" / f"sf{SCALE}").mkdir(parents=True)
    with duckdb.connect() as client:
        client.execute(
            "COPY (SELECT i AS o_orderkey, i % 99 AS o_custkey, 'O' AS o_orderstatus, "
            "(i * 1.25)::DECIMAL(15,2) AS o_totalprice, DATE '1996-01-01' + (i % 300)::INTEGER AS o_orderdate, "
            "'5-LOW' AS o_orderpriority, 'Clerk ' || i AS o_clerk, 0::INTEGER AS o_shippriority, "
            "'über ' || i AS o_comment FROM range(1500) AS t(i)) "
            f"TO '{folder}/cache/tpch/sf{SCALE}/orders.parquet' (FORMAT parquet)"
        )
    return folder


def bench(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """One invocation of the harness that touches nothing outside `home`."""
    places = ("--cache", str(home / "cache"), "--results", str(home / "results.json"), "--docs", str(home / "docs"))
    command = [sys.executable, "-m", "bench", "--scale", SCALE, "--repeats", "1", "--warmups", "0", *places, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def measured(home: Path) -> dict[str, Any]:
    """The results of two invocations, merged."""
    first = bench(home, "--only", "help,start", "--peers", "warm,stock", "--json", str(home / "out.json"))
    assert first.returncode == 0, first.stdout + first.stderr
    second = bench(home, "--only", "parquet_to_duckdb", "--peers", "none")
    assert second.returncode == 0, second.stdout + second.stderr
    found: dict[str, Any] = json.loads((home / "results.json").read_text(encoding="utf-8"))["cases"]
    return found


@measuring
def test_product_and_peer_give_equal_results(measured: dict[str, Any]) -> None:
    ours, warm, stock = (measured["start"]["contestants"][name] for name in ("product", "warm", "stock"))
    assert (ours["rows"], ours["checksum"]) == (stock["rows"], stock["checksum"])
    assert (warm["rows"], warm["checksum"]) == (stock["rows"], stock["checksum"])
    assert (ours["rows"], ours["equal"], warm["equal"], stock["equal"]) == (100, True, True, True)
    loaded = measured["parquet_to_duckdb"]["contestants"]["product"]
    assert (loaded["rows"], loaded["equal"], loaded["problem"]) == (1500, True, "")


@measuring
def test_wall_and_cpu_seconds_of_every_contestant_are_kept(home: Path, measured: dict[str, Any]) -> None:
    assert set(measured) == {"help", "start", "parquet_to_duckdb"}
    alone = json.loads((home / "out.json").read_text(encoding="utf-8"))["cases"]
    assert alone == {name: measured[name] for name in ("help", "start")}
    for case in measured.values():
        assert case.keys() >= {"date", "scale", "rows", "repeats", "machine", "contestants", "goals"}
        for item in case["contestants"].values():
            assert item["wall"].keys() == item["cpu"].keys() == {"median", "min", "max", "all"}
            assert item["wall"]["median"] > 0
            assert item["cpu"]["median"] > 0
    assert [goal["ratio"] is not None for goal in measured["start"]["goals"]] == [True, True, False, False]
    assert measured["parquet_to_duckdb"]["goals"][0]["met"] is None


@measuring
def test_the_page_and_its_picture_are_written(home: Path, measured: dict[str, Any]) -> None:
    text = (home / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for words in (
        "flow --help",
        "≥ 2.5× cold, ≥ 12× warm stock PySpark",
        "≤ 0.8 s warm",
        "not measured",
        "scale 0.001, 1 run",
        "## How to repeat it",
    ):
        assert words in text
    drawn = ElementTree.parse(home / "docs" / "images" / "benchmarks.svg").getroot()
    assert "stock PySpark" in [item.text for item in drawn.iter("{http://www.w3.org/2000/svg}text")]


@measuring
def test_a_row_that_falls_short_is_marked_and_explained(measured: dict[str, Any], tmp_path: Path) -> None:
    cases = copy.deepcopy(measured)
    goal = cases["start"]["goals"][0]
    goal.update(ratio=0.5, met=False)
    (tmp_path / "start.md").write_text("Most of it is the start of the JVM.", encoding="utf-8")
    text = page.render(cases, notes=tmp_path)
    assert "**0.50×** ✗ short of it" in text
    assert "Most of it is the start of the JVM." in text
    assert 'class="short"' in picture.render(cases)
    goal.update(ratio=50.0, met=True, is_lower_bound=True)
    assert "**> 50×** ✓" in page.render(cases, notes=tmp_path)


@pytest.mark.parametrize(("ours", "told", "met"), [(340.0, "**+40** ✓", True), (460.0, "**+160** ✗", False)])
def test_a_goal_may_be_a_difference_in_the_unit_of_its_case(tmp_path: Path, ours: float, told: str, met: bool) -> None:
    case, place = CASES["stream_latency"], Place(1.0, tmp_path)
    figures = {"product": ours, "stock": 300.0}
    outcomes = {
        item.name: Outcome(item, [Run(1.0, 1.0, 1.0, 0.0, steps={"median": figures[item.name]})])
        for item in case.contestants
    }
    found = results.summary(case, place, Options(1, 0), outcomes, Machine())
    place.close()
    assert found["goals"][0]["met"] is met
    text = page.render({case.name: found}, notes=tmp_path)
    for words in (told, f"{ours:.2f} ms", "≤ 150 ms more than bare Structured Streaming"):
        assert words in text


@measuring
def test_a_smaller_run_does_not_replace_a_larger_one(measured: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results.write(file, {"start": {**measured["start"], "scale": 1.0}})
    fewer = {**measured["start"], "scale": 1.0, "contestants": {}}
    for weaker in (measured["start"], fewer):
        kept, refused = results.merge(file, {"start": weaker}, replace=False)
        assert (kept["start"]["scale"], bool(kept["start"]["contestants"]), refused) == (1.0, True, ["start"])
    kept, refused = results.merge(file, {"start": measured["start"]}, replace=True)
    assert (kept["start"]["scale"], refused) == (float(SCALE), [])
    assert results.read(file) == kept


def test_an_unknown_case_is_refused_with_the_names_there_are(home: Path) -> None:
    done = bench(home, "--only", "pg_to_nowhere")
    assert done.returncode == 2
    assert "no case pg_to_nowhere; there are help, start" in done.stderr


@measuring
def test_a_warm_run_costs_what_its_engine_used(measured: dict[str, Any]) -> None:
    """The client of an engine needs a few tenths of a second; the JVM that did the load is the larger part."""
    warm = measured["start"]["contestants"]["warm"]
    assert warm["peak_mb"] > 150
    assert warm["cpu"]["median"] > 0.3


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_what_a_case_names_is_there(case: Case) -> None:
    """Scripts, pipelines, jars and goals of every case, without running it."""
    known = {item.name for item in case.contestants}
    for goal in case.goals:
        assert goal.who in known
        assert goal.peer in known or goal.at_most or goal.at_most_seconds
    for item in case.contestants:
        words = Stand(item, Path("bin"), {}).command
        for file in (Path(word) for word in words if word.endswith(".py")):
            compile(file.read_text(encoding="utf-8"), str(file), "exec")
        assert set(item.jars) <= {*read_lock(), *read_lock(ROOT / "bench" / "jars.lock.toml")}


@pytest.mark.parametrize(
    ("cold", "warm", "told"),
    [
        (5.0, 2.0, "| 2.00 s (2.00–2.00) | 18.0 s (18.0–18.0) | **3.60×** ✓ | **9.00×** ✓ | 3.60× / 9.00× |"),
        (9.0, 6.0, "| **2.00×** ✗ short of it | **3.00×** ✗ short of it | 2.00× / 3.00× |"),
    ],
)
def test_a_goal_for_cold_and_one_for_warm_are_one_row(tmp_path: Path, cold: float, warm: float, told: str) -> None:
    case, place = CASES["parquet_to_pg"], Place(1.0, tmp_path)
    walls = {"product": cold, "warm": warm, "stock": 18.0, "polars": 4.0}
    outcomes = {
        item.name: Outcome(item, [Run(walls[item.name], walls[item.name], 1.0, 0.0)]) for item in case.contestants
    }
    found = results.summary(case, place, Options(1, 0), outcomes, Machine())
    place.close()
    text = page.render({case.name: found}, notes=tmp_path)
    assert "≥ 3× cold, ≥ 4× warm stock PySpark" in text
    assert told in text


@measuring
def test_an_invocation_goes_on_where_another_ended(measured: dict[str, Any], home: Path) -> None:
    again = bench(home, "--only", "help,start,parquet_to_duckdb", "--missing", "--peers", "none")
    assert (again.returncode, again.stdout) == (0, "")


def launched(folder: Path, *, stop_after: float, command: list[str]) -> dict[str, Any]:
    """What launch.py says about a command."""
    report = folder / "cost.json"
    launcher = [sys.executable, str(ROOT / "bench" / "launch.py"), str(report), str(folder / "log")]
    subprocess.run([*launcher, str(stop_after), "60", "--", *command], check=True, timeout=120)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def test_a_process_that_outlives_its_parent_is_counted(tmp_path: Path) -> None:
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}], start_new_session=True)"
    cost = launched(tmp_path, stop_after=0, command=[sys.executable, "-c", leaves])
    assert (cost["code"], cost["stopped"], cost["left_running"]) == (0, False, 0)
    assert cost["cpu"] >= 0.5


def test_who_takes_too_long_is_stopped_with_all_its_processes(tmp_path: Path) -> None:
    mark = tmp_path / "child.pid"
    cost = launched(tmp_path, stop_after=1, command=["sh", "-c", f"sleep 100 & echo $! > {mark}; sleep 100"])
    assert (cost["stopped"], cost["code"], cost["left_running"]) == (True, None, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


@pytest.mark.parametrize(
    ("scale", "memory", "disk", "said"),
    [(1, 4, 10, ""), (10, 23, 70, ""), (10, 8, 70, "15 GB of memory"), (10, 64, 5, "20 GB on disk")],
)
def test_queries_that_do_not_fit_this_machine_are_left_out_with_a_reason(
    scale: float, memory: float, disk: float, said: str
) -> None:
    found = too_large(scale, memory=memory, disk=disk)
    assert said in found
    assert bool(found) == bool(said)
