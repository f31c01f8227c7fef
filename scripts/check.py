"""Run the checks one after the other, each announced and timed; the first that fails ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")
STEPS = {
    "lint": {
        "ruff check": [str(BIN / "ruff"), "check", "."],
        "ruff format": [str(BIN / "ruff"), "format", "--check", "."],
        "mypy": [str(BIN / "mypy")],
        "layers": [str(BIN / "lint-imports")],
        "words": [PYTHON, "scripts/words.py"],
        "generated pages": [PYTHON, "scripts/docs.py", "--check"],
    },
    "services": {"servers for the tests": [PYTHON, "-m", "tests.services", "install"]},
}
# A file stays with one worker: its servers, databases and Spark session are its own. Files with slow tests come first.
SIDE_BY_SIDE = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=20"]
PYTEST = {
    "unit": ["tests/unit"],
    "coverage": ["tests/unit", "--cov=ematix_flow", "--cov-report=term:skip-covered"],
    "tests": SIDE_BY_SIDE,
    "everything": [*SIDE_BY_SIDE, "--full", "--promises"],
}


ENGINES = [(engine, lane) for engine in ("embedded", "warm", "cluster") for lane in ("spark", "arrow")]
# Streams do not join an engine and have no lanes.
BATCH_CONTRACT = ["tests/contract", *SIDE_BY_SIDE, *(
    f"--ignore-glob=tests/contract/test_{pattern}.py" for pattern in ("stream_*", "change*"))]  # fmt: skip


def main(words: list[str]) -> int:
    """`check.py lint tests -- -k scd2`: what follows the dashes goes to pytest, which comes last."""
    split = words.index("--") if "--" in words else len(words)
    for name in words[:split]:
        if name == "engines":
            return test_engines(words[split + 1 :])
        if name in PYTEST:
            become_pytest(name, [*PYTEST[name], *words[split + 1 :]])
        for title, command in STEPS[name].items():
            code = run(title, command)
            if code != 0:
                return code
    return 0


def run(title: str, command: list[str]) -> int:
    print(f"== {title}", flush=True)
    started = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    seconds = f"{time.monotonic() - started:.1f} s"
    print(f"   {seconds}" if code == 0 else f"== {title} failed after {seconds}", flush=True)
    return code


def test_engines(words: list[str]) -> int:
    """Run the batch contract on every engine in every lane; return 1 if any of the runs failed."""
    failed = []
    for engine, lane in ENGINES:
        os.environ.update(
            CONTRACT_ENGINE="" if engine == "embedded" else engine, CONTRACT_LANE=lane, REQUIRE_SERVICES="1"
        )
        if run(f"contract, engine {engine}, lane {lane}", [PYTHON, "-m", "pytest", *BATCH_CONTRACT, *words]) != 0:
            failed.append(f"engine {engine}, lane {lane}")
    print(f"== failed: {'; '.join(failed)}" if failed else "== passed on every engine in every lane", flush=True)
    return 1 if failed else 0


def become_pytest(title: str, words: list[str]) -> None:
    """In place of this process: a signal meant for the run reaches pytest, and its closing line is the last one."""
    print(f"== {title}", flush=True)
    os.chdir(ROOT)
    os.execve(PYTHON, [PYTHON, "-m", "pytest", *words], {**os.environ, "REQUIRE_SERVICES": "1"})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
