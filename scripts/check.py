"""Run the checks one after the other, each announced and timed; the first that fails ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
PYTEST = [str(BIN / "python"), "-m", "pytest"]
STEPS: dict[str, list[tuple[str, list[str]]]] = {
    "lint": [
        ("ruff check", [str(BIN / "ruff"), "check", "."]),
        ("ruff format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("mypy", [str(BIN / "mypy")]),
        ("layers", [str(BIN / "lint-imports")]),
    ],
    "services": [("servers for the tests", [str(BIN / "python"), "-m", "tests.services", "install"])],
    "unit": [("unit tests", [*PYTEST, "tests/unit"])],
    "tests": [("all tests", [*PYTEST, "-n", "2", "--dist", "loadfile"])],
}


def main(words: list[str]) -> int:
    """`check.py lint tests -- -k scd2`: what follows the dashes goes to pytest."""
    split = words.index("--") if "--" in words else len(words)
    names, more = words[:split], words[split + 1 :]
    for name in names:
        for title, command in STEPS[name]:
            is_pytest = command[:3] == PYTEST
            code = run(title, [*command, *more] if is_pytest else command, closes_itself=is_pytest)
            if code != 0:
                return code
    return 0


def run(title: str, command: list[str], *, closes_itself: bool) -> int:
    """pytest tells its own seconds, and its closing line shall be the last one."""
    print(f"== {title}", flush=True)
    started = time.monotonic()
    environment = {**os.environ, "REQUIRE_SERVICES": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if code != 0:
        print(f"== {title} failed after {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
    elif not closes_itself:
        print(f"   {time.monotonic() - started:.1f} s", flush=True)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
