"""What every contestant of the TPC-H case does with its engine; imported by scripts in their own environments."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path


def run_queries(execute: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Every query in each of BENCH_TPCH_ROUNDS rounds, two by default: the first answers are kept, the last round counts."""
    folder = Path(os.environ["BENCH_RUN"])
    queries = {file.stem: file.read_text() for file in sorted(Path(__file__).parent.glob("q*.sql"))}
    answers: dict[str, list[list[object]]] = {}
    seconds: dict[str, float] = {}
    for _ in range(int(os.environ.get("BENCH_TPCH_ROUNDS", "2"))):
        for name, query in queries.items():
            started = time.perf_counter()
            rows = execute(query)
            seconds[name] = time.perf_counter() - started
            answers.setdefault(name, [[_plain(value) for value in row] for row in rows])
    (folder / "answers.json").write_text(json.dumps(answers))
    (folder / "steps.json").write_text(json.dumps(seconds))


def _plain(value: object) -> object:
    """Numbers as numbers, everything else as text, so that engines with different types can be compared."""
    if value is None or isinstance(value, (int, float)):
        return value
    try:
        return float(str(value))
    except ValueError:
        return str(value)
