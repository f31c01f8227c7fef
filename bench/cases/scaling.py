"""Ten times the rows, and how many times the seconds: append, merge and scd2, half a million rows and five million."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.model import PRODUCT, TENTH, Case, Contestant, Goal
from bench.place import FOLDER, Place

_ROWS = 5_000_000
_TIMES = 10.5
_KINDS = {"postgres": "PostgreSQL", "delta": "Delta"}
# A load changes every fifth of the rows before it, and a hundredth of its keys is new.
_QUERY = (
    "SELECT i AS o_orderkey, i % 150000 AS o_custkey, CASE i % 3 WHEN 0 THEN 'O' WHEN 1 THEN 'F' ELSE 'P' END AS o_status, "
    "(i % 100000 * 1.25 + {raised})::DECIMAL(15,2) AS o_totalprice, DATE '1992-01-01' + (i % 2400)::INTEGER AS o_orderdate, "
    "md5(i::VARCHAR) AS o_comment FROM range({first}, {first} + {rows}) AS t(i)"
)
_RAISED = "CASE WHEN i % 5 = 0 THEN 1 ELSE 0 END"


def _rows(place: Place) -> tuple[int, int]:
    most = max(1000, round(_ROWS * place.scale))
    return most // 10, most


def _prepare(place: Place) -> Mapping[str, str]:
    import duckdb

    folder = place.cache / "scaling" / f"scale{place.scale:g}"
    (folder / "scaled").mkdir(parents=True, exist_ok=True)
    queries = {"warm": _QUERY.format(raised=0, first=0, rows=100)}
    for rows in _rows(place):
        queries[f"before_{rows}"] = _QUERY.format(raised=0, first=0, rows=rows)
        queries[f"after_{rows}"] = _QUERY.format(raised=_RAISED, first=rows // 100, rows=rows)
    with duckdb.connect() as client:
        for name, query in queries.items():
            path = folder / "scaled" / f"{name}.parquet"
            if not path.is_file():
                client.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 122880)")
    less, more = _rows(place)
    return {
        "BENCH_LAKE": str(folder),
        "BENCH_PG": place.postgres(),
        "BENCH_DELTA": str(place.work / "target"),
        "BENCH_ROWS_LESS": str(less),
        "BENCH_ROWS_MORE": str(more),
    }


def _steps(folder: Path) -> Mapping[str, float]:
    found: dict[str, float] = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    return found


def _check(mode: str, kind: str) -> Callable[[Place, Path], str]:
    """What is there now, asked of the system's own client; the tables go afterwards."""

    def check(place: Place, _: Path) -> str:
        wrong = []
        for rows in _rows(place):
            found = _counted(place, kind, f"{mode}_{rows}")
            if found is not None and found != _expected(mode, rows):
                wrong.append(f"{mode}_{rows} holds {found} rows instead of {_expected(mode, rows)}")
        return "; ".join(wrong)

    return check


def _expected(mode: str, rows: int) -> int:
    if mode == "append":
        return rows
    new = rows // 100
    changed = sum(1 for key in range(new, rows) if key % 5 == 0)
    return rows + new + (changed if mode == "scd2" else 0)


def _counted(place: Place, kind: str, table: str) -> int | None:
    if kind == "delta":
        folder = place.work / "target" / "scaled" / table
        if not folder.is_dir():
            return None
        from deltalake import DeltaTable

        return int(DeltaTable(str(folder)).to_pyarrow_dataset().count_rows())
    import psycopg

    with psycopg.connect(place.postgres(), autocommit=True) as client:
        there = client.execute("SELECT to_regclass(%s)", (f"scaled.{table}",)).fetchone()
        if not there or there[0] is None:
            return None
        found = client.execute(f"SELECT count(*) FROM scaled.{table}").fetchone()  # type: ignore[arg-type]
        client.execute("DROP SCHEMA scaled CASCADE")
        client.execute("DROP SCHEMA IF EXISTS ematix_flow CASCADE")
        return int(found[0]) if found else None


def _contestant(name: str, mode: str, kind: str, rows: str) -> Contestant:
    own = (("BENCH_MODE", mode), ("BENCH_KIND", kind), ("BENCH_SIZE", rows))
    return Contestant(
        name, f"this product, {rows}", ("{bin}/python", str(FOLDER / "scaling" / "ours.py")), variables=own
    )


def _case(mode: str, kind: str) -> Case:
    return Case(
        name=f"scale_{mode}_{kind}",
        title=f"{mode} into {_KINDS[kind]}, ten times the rows",
        contestants=(_contestant(PRODUCT, mode, kind, "5 M rows"), _contestant(TENTH, mode, kind, "0.5 M rows")),
        goals=(Goal(TENTH, at_most_times=_TIMES),),
        is_warm=True,
        steps=_steps,
        prepare=_prepare,
        check=_check(mode, kind),
        note="Seconds of the load alone, in a session that has loaded a hundred rows before.",
    )


CASES = tuple(_case(mode, kind) for kind in _KINDS for mode in ("append", "merge", "scd2"))
