"""The 22 queries of TPC-H, asked of a connection: what our session's settings and the order of joins do for Spark."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import data
from bench.contestants import duckdb, on_sail, polars, stock
from bench.model import PRODUCT, SAIL, Case, Contestant, Goal, Unavailable
from bench.place import FOLDER, Place

_CODE = FOLDER / "tpch"
_EXPECTED = "tpch_answers.json"
_GIGABYTE = 2**30
_MEMORY_PER_SCALE = 1.5
_DISK_PER_SCALE = 2.0


_TEN = 10


def _prepare(place: Place) -> Mapping[str, str]:
    return _prepared(place, place.scale)


def _prepare_ten_times(place: Place) -> Mapping[str, str]:
    more = {"BENCH_TPCH_ROUNDS": "1", "BENCH_STOCK_MEMORY": "8g"}
    return {**_prepared(place, _TEN * place.scale), **more}


def _prepared(place: Place, scale: float) -> Mapping[str, str]:
    """The tables, and DuckDB's answers to compare with."""
    import duckdb as engine

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIGABYTE
    refusal = too_large(scale, memory=memory, disk=shutil.disk_usage(place.cache).free / _GIGABYTE)
    if refusal:
        raise Unavailable(refusal)
    folder = data.tpch(place, *data.TPCH, scale=scale)
    with engine.connect() as client:
        for table in data.TPCH:
            client.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{folder}/{table}.parquet')")
        answers = {
            file.stem: client.execute(file.read_text(encoding="utf-8")).fetchall()
            for file in sorted(_CODE.glob("q*.sql"))
        }
    (place.work / _EXPECTED).write_text(json.dumps(answers, default=str), encoding="utf-8")
    return {"BENCH_TPCH": str(folder), "BENCH_TPCH_TABLES": ",".join(data.TPCH), "BENCH_TPCH_CODE": str(_CODE)}


def too_large(scale: float, *, memory: float, disk: float) -> str:
    """Return why the queries do not fit a machine with so many gigabytes, empty where they do."""
    if memory < scale * _MEMORY_PER_SCALE:
        return f"scale {scale:g} needs {scale * _MEMORY_PER_SCALE:.0f} GB of memory, and this machine has {memory:.0f}"
    if disk < scale * _DISK_PER_SCALE:
        return f"scale {scale:g} needs {scale * _DISK_PER_SCALE:.0f} GB on disk, and {disk:.0f} are free"
    return ""


def _steps(folder: Path) -> Mapping[str, float]:
    found: dict[str, float] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    return found


def _check(place: Place, folder: Path) -> str:
    expected = json.loads((place.work / _EXPECTED).read_text(encoding="utf-8"))
    answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    wrong = [name for name in expected if not _equal(expected[name], answers.get(name))]
    return f"{', '.join(wrong)} differ from DuckDB's answers" if wrong else ""


def _equal(expected: list[list[object]], found: list[list[object]] | None) -> bool:
    if found is None or len(found) != len(expected):
        return False
    pairs = zip(sorted(expected, key=_order), sorted(found, key=_order), strict=True)
    return all(_same(left, right) for one, other in pairs for left, right in zip(one, other, strict=True))


def _order(row: list[object]) -> list[tuple[str, float]]:
    """Numbers by their value, with the noise of division rounded away."""
    values = [_value(value) for value in row]
    return [(text, round(number, 2)) for text, number in values]


def _value(value: object) -> tuple[str, float]:
    try:
        return "", float(str(value))
    except ValueError:
        return str(value), 0.0


def _same(left: object, right: object) -> bool:
    """Spark divides decimals to six places, DuckDB as doubles."""
    (text, number), (other_text, other) = _value(left), _value(right)
    return text == other_text and abs(number - other) <= 1e-5 + 1e-9 * abs(number)


_OURS = Contestant(
    name=PRODUCT,
    label="this product",
    command=("{bin}/python", "{peers}/../tpch/ours.py"),
)

_ONCE = Case(
    name="tpch",
    title="TPC-H, 22 queries",
    contestants=(
        _OURS,
        on_sail(_OURS),
        stock("tpch"),
        duckdb("tpch"),
        polars("tpch"),
    ),
    goals=(Goal(at_least=1.5), Goal(at_least=10, who=SAIL), Goal("duckdb", at_least=0.4, who=SAIL)),
    is_warm=True,
    steps=_steps,
    prepare=_prepare,
    check=_check,
    note="Every query runs twice in one process and the second run counts; answers are compared with DuckDB's.",
)
CASES = (
    _ONCE,
    replace(
        _ONCE,
        name="tpch_ten",
        title="TPC-H at scale factor 10, 22 queries",
        prepare=_prepare_ten_times,
        contestants=(_OURS, stock("tpch"), duckdb("tpch"), polars("tpch")),
        goals=(Goal(at_least=1.5),),
        note="Every query runs once in one process, the first one after the start; answers are compared with DuckDB's. "
        "Stock PySpark has a heap of 8 GB, more than ours: with 4 GB, as at scale factor 1, it runs out of memory.",
    ),
)
