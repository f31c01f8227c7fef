"""What every contestant of the TPC-H case does with its engine; imported by scripts in their own environments."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path


def run_queries(execute: Callable[[str], list[tuple[object, ...]]]) -> None:
    """Every query twice: the first answer is kept to be compared, the second is timed."""
    folder = Path(os.environ["BENCH_RUN"])
    queries = {file.stem: file.read_text() for file in sorted(Path(__file__).parent.glob("q*.sql"))}
    answers = {name: [[_plain(value) for value in row] for row in execute(query)] for name, query in queries.items()}
    (folder / "answers.json").write_text(json.dumps(answers))
    seconds = {}
    for name, query in queries.items():
        started = time.perf_counter()
        execute(query)
        seconds[name] = time.perf_counter() - started
    (folder / "steps.json").write_text(json.dumps(seconds))


def _plain(value: object) -> object:
    """Numbers as numbers, everything else as text, so that engines with different types can be compared."""
    if value is None or isinstance(value, (int, float)):
        return value
    try:
        return float(str(value))
    except ValueError:
        return str(value)
