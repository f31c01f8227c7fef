"""The main file of an application that spark-submit runs: `flow`, with the application's session as its own.

Its arguments are the driver's settings, as JSON, and the arguments of `flow`. It has a folder of its own because
Python looks for modules beside a main file first.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import sys
from pathlib import Path

FOLDER_VARIABLE = "EMATIX_FLOW_SUBMISSION"
"""The folder of this submission, where the driver runs on the scheduler's machine."""
SETTINGS_FILE, PID_FILE = "spark.conf", "pid"


def main() -> None:
    """Join the Spark application, then run `flow`."""
    described, *words = sys.argv[1:]
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    from ematix_flow.engine.session import session, submitted_application

    description = json.loads(described)
    submitted_application.enter_application(description)
    if description.get("session_first"):  # YARN fails a driver that never requests a session
        session.spark_session(description["jars"])
    sys.argv = ["flow", *words]
    runpy.run_module("ematix_flow.cli", run_name="__main__", alter_sys=True)


def _sign_in(folder: Path) -> None:
    """Delete the settings file, which was read and may contain secrets; write this process's id, for signals."""
    (folder / SETTINGS_FILE).unlink(missing_ok=True)
    part = folder / f".{PID_FILE}"
    part.write_text(str(os.getpid()), encoding="ascii")
    part.replace(folder / PID_FILE)


if __name__ == "__main__":
    place = os.environ.pop(FOLDER_VARIABLE, "")
    try:
        if place:
            _sign_in(Path(place))
        main()
    finally:
        if place:
            shutil.rmtree(place, ignore_errors=True)
