"""`python -m tests.soak --runs 2000 --kills 40`: exits with 1 when anything was lost, doubled or grew."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soaking import Soak


def main() -> int:
    """Soak in a new folder, print the report, and keep the folder when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    report = Soak(folder, runs=given.runs, kills=given.kills, seed=given.seed).soak()
    print(report.shown())
    if report.wrong:
        print(f"everything is still in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
