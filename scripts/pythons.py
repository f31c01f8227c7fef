"""Run the unit tests on every supported release of Python that uv finds on this machine, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = str(ROOT / ".venv" / "bin" / "uv")
RELEASES = ("3.10", "3.11", "3.12", "3.13")
LOCKED = (
    "--require-hashes",
    "--no-build-isolation",
    "--config-settings-package",
    "pyspark:--build-option=--compression=stored",
)


def main(words: list[str]) -> int:
    """Test the releases named, or all; what follows two dashes goes to pytest. Return 1 if one of them failed."""
    split = words.index("--") if "--" in words else len(words)
    outcomes = {release: tested(release, words[split + 1 :]) for release in words[:split] or RELEASES}
    print("\n".join(f"Python {release}: {outcome}" for release, outcome in outcomes.items()))
    return int("failed" in outcomes.values())


def tested(release: str, more: list[str]) -> str:
    found = subprocess.run([UV, "python", "find", "--no-project", release], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return "not found on this machine"
    print(f"== Python {release}: {found.stdout.strip()}", flush=True)
    folder = ROOT / "build" / f"python-{release}"
    python = str(folder / "bin" / "python")
    for command in (
        ["venv", "--quiet", "--clear", "--python", found.stdout.strip(), str(folder)],
        ["pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", "requirements-build.lock"],
        ["pip", "sync", "--quiet", "--python", python, *LOCKED, "requirements.lock"],
        ["pip", "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation", "--editable", "."],
    ):
        subprocess.run([UV, *command], cwd=ROOT, check=True)
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "2", "tests/unit", *more], cwd=ROOT, env=variables, check=False
    )
    return "passed" if run.returncode == 0 else "failed"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
