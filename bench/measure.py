"""One run of one contestant: a fresh process in a clean environment, timed from outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import engine_cost, envs
from bench.engine_cost import EngineCost
from bench.model import STOCK, Case, Contestant, Run, Unavailable
from bench.place import FOLDER, ROOT, Place

# What a command leaves behind is waited for: its JVM always, and after a warm-up also what is made once.
PATIENCE, WARMUP_PATIENCE = 60.0, 900.0
MOST_SECONDS = 1800.0  # a contestant that hangs does not hold up the cases after it
# Nothing that tunes Spark, Java, Python or the product on this machine reaches a contestant.
_DROPPED = ("SPARK_", "PYSPARK_", "EMATIX_", "PYTHON", "JDK_JAVA", "JAVA_TOOL", "_JAVA", "PG", "BENCH_", "FLOW_")
_KEPT = ("EMATIX_FLOW_CACHE", "EMATIX_FLOW_IVY_SETTINGS")


@dataclass(frozen=True)
class Stand:
    """A contestant ready to run: its command, and the variables that do not change from run to run."""

    contestant: Contestant
    programs: Path
    variables: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """The command with its places filled in."""
        return self.filled(self.contestant.command)

    def filled(self, words: tuple[str, ...]) -> list[str]:
        """Words of a command or of a variable with their places filled in."""
        return [
            word.format(bin=self.programs, peers=FOLDER / "peers", pipelines=FOLDER / "pipelines") for word in words
        ]


def stand(place: Place, case: Case, contestant: Contestant, variables: Mapping[str, str]) -> Stand:
    """Make the contestant's environment and fetch its jars."""
    ready = Stand(contestant, envs.programs(contestant.home, cache=place.cache), {})
    own = dict(zip((name for name, _ in contestant.variables), _values(ready), strict=True))
    if contestant.jars:
        own["BENCH_JARS"] = ",".join(str(path) for path in _jars(contestant.jars))
    if not contestant.home and contestant.name != STOCK:
        own["PYTHONPATH"] = str(ROOT / "src")  # the product of this checkout, whatever the environment has installed
    if not contestant.opens:  # nothing that a run leaves behind makes the next one warm
        own["EMATIX_FLOW_KEEP_WARM"] = "0"
    own |= {
        "DLT_DATA_DIR": str(place.work / "dlt"),
        "EMATIX_FLOW_RUN_LOG_PATH": str(place.work / "run_log.db"),
        "EMATIX_FLOW_LOGS_DIR": str(place.work / "logs"),
        # Only a contestant that starts an engine joins one: not that of the user, nor that of another contestant.
        engine_cost.VARIABLE: str(place.engines / contestant.name),
    }
    return Stand(contestant, ready.programs, {**_inherited(), **own, **variables})


def run_once(place: Place, case: Case, ready: Stand, variables: Mapping[str, str], *, log: Path, counts: bool) -> Run:
    """Run it; whatever goes wrong is told in the result and never raised."""
    folder = place.work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    report = folder / "cost.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    before = _engine_cost(ready)
    stop_after = ready.contestant.stop_after or MOST_SECONDS
    subprocess.run(
        [
            *(sys.executable, "-S", "-E", str(FOLDER / "launch.py"), str(report), str(log)),
            *(str(stop_after), str(PATIENCE if counts else WARMUP_PATIENCE), "--", *ready.command),
        ],
        cwd=folder,
        env={**ready.variables, **variables, "BENCH_RUN": str(folder)},
        check=True,
    )
    after = _engine_cost(ready)
    cost = json.loads(report.read_text(encoding="utf-8"))
    cpu, peak = cost["cpu"] + max(0.0, after.cpu - before.cpu), max(cost["peak_mb"], after.peak_mb)
    run = Run(cost["wall"], cpu, peak, load, cost["stopped"], cost["left_running"])
    if run.stopped and not ready.contestant.stop_after:
        run.problem = f"did not end within {MOST_SECONDS:.0f} s"
    elif not run.stopped and cost["code"] != 0:
        run.problem = f"ended with {cost['code']}: {_last_line(log)}"
    elif case.steps is not None and not run.stopped:
        run.steps = case.steps(folder)
    elif ready.contestant.is_product and case.target is not None and counts:
        run.profile = _profile(ready)
    return run


def _profile(ready: Stand) -> Mapping[str, float]:
    """Seconds of the newest run by step, as the product's own run log has them; empty where it has none."""

    def told(*words: str) -> Any:
        command = [str(ready.programs / "flow"), "runs", *words, "--json"]
        return json.loads(subprocess.run(command, env=dict(ready.variables), capture_output=True, check=True).stdout)

    newest = told("list")["runs"][:1]
    shown = told("show", newest[0]["run_id"]) if newest else {}
    steps = shown.get("extras", {}).get("steps", [])
    return {str(step["step"]): float(step["seconds"]) for step in steps}


def _engine_cost(ready: Stand) -> EngineCost:
    """What the contestant's warm engine has used so far; nothing for one without an engine."""
    return EngineCost.of(ready.variables[engine_cost.VARIABLE]) if ready.contestant.opens else EngineCost(0.0, 0.0)


def flow_command(ready: Stand, words: tuple[str, ...]) -> None:
    """A command that makes a contestant warm, or ends that."""
    done = subprocess.run(
        ready.filled(words), env=dict(ready.variables), capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        errors = [line for line in said if line.startswith("✗")] or said[-1:]
        raise Unavailable(f"`{' '.join(words[1:])}` ended with {done.returncode}: {' '.join(errors)}")


def _values(ready: Stand) -> list[str]:
    return ready.filled(tuple(value for _, value in ready.contestant.variables))


def _inherited() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_DROPPED)}
    kept["TZ"] = "UTC"
    if "JAVA_HOME" not in kept:
        from ematix_flow.engine.session.java import find_java

        kept["JAVA_HOME"] = str(find_java().parent.parent)
    return kept


def _jars(sets: tuple[str, ...]) -> list[Path]:
    from ematix_flow.engine.session import jars
    from ematix_flow.foundation.errors import FlowError

    ours = FOLDER / "jars.lock.toml"
    drivers = jars.read_lock(ours)
    found: list[Path] = []
    try:
        for name in sets:
            found += jars.ensure_jars([name], lock=ours if name in drivers else jars.LOCK)
    except FlowError as error:
        raise Unavailable(f"the jars for {', '.join(sets)}: {error}") from error
    return found


def _last_line(log: Path) -> str:
    """The line that names the error, as Python and Java write it; else the last one."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.]*(Error|Exception|Panic)\w*: ", line)]
    return ((causes or lines or ["it printed nothing"])[-1])[:300]
