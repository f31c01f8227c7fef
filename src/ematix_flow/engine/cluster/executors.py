"""Waits for executors, counts their cores, and checks that they have what tasks need."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for
from ematix_flow.dataplane import parquet_stage
from ematix_flow.engine.cluster import master_urls
from ematix_flow.engine.cluster.executor_probe import executor_probe, mark_folders
from ematix_flow.engine.session.engine_choice import EngineChoice
from ematix_flow.foundation.errors import ConfigError, FlowError, RunFailed, Unreachable
from ematix_flow.foundation.lazy_imports import f
from ematix_flow.foundation.redact import mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]
_BRING = "install it there, or bring it along with spark.archives (docs/clusters.md, Python on the workers)"
_NAME_IT = 'name one of theirs: "spark.pyspark.python" = "…" below [spark] (docs/clusters.md, Python on the workers)'
_QUIET_SECONDS = 3.0
_LOOKS, _BETWEEN_LOOKS = 4, 0.5
_ENOUGH_ROWS = 100_000
_SEEN_SECONDS = 30.0
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')


@dataclass(frozen=True)
class TaskRequirements:
    """Requirements of a run's tasks on every machine: importable packages, and shared folders."""

    packages: frozenset[str] = frozenset()
    folders: frozenset[Path] = frozenset()
    stage: Path | None = None
    """The stage folder, if tasks write into it."""


@dataclass
class _ExecutorFacts:
    """The facts collected about the executors of one session."""

    session: SparkSession | None = None
    cores: int = 0
    has_python: bool = False
    packages: set[str] = field(default_factory=set)
    folders: dict[Path, float] = field(default_factory=dict)
    """Shared folders and when they were probed: a worker that joins later may not share them."""

    def still_shared(self) -> set[Path]:
        """Return the folders that all machines shared when probed within the last 30 s."""
        return {folder for folder, seen in self.folders.items() if time.monotonic() - seen < _SEEN_SECONDS}


_known = _ExecutorFacts()


def cores_of(session: SparkSession | None) -> int | None:
    """Return the number of cores of the session's executors, None for a session that was not probed."""
    return _known.cores if session is not None and _known.session is session else None


def await_executors(session: SparkSession, choice: EngineChoice, report: Tell) -> int:
    """Wait for the first executors of a new session, and return the number of their cores."""
    global _known
    _await_executors(session, choice, report)
    try:
        _known = _ExecutorFacts(session, _count_cores(session))
    except Exception as error:
        raise _explain_probe_error(error) from error
    return _known.cores


def require_on_executors(session: SparkSession, needs: TaskRequirements) -> None:
    """Probe every task slot with one small job; raise ConfigError that names what is missing on which worker."""
    global _known
    if _known.session is not session:
        _known = _ExecutorFacts(session, _count_cores(session))
    packages = sorted(needs.packages - _known.packages)
    wanted = needs.folders | ({needs.stage} if needs.stage else set())
    folders = sorted(wanted - _known.still_shared())
    if not packages and not folders and _known.has_python:
        return
    if _known.has_python:  # executors may have joined since they were first counted
        _known.cores = _parts(session)
    with mark_folders(folders) as marks:
        for answer in _probe_executors(session, executor_probe(packages, marks)):
            _refuse_python(answer)
            _refuse_folders(answer, needs)
    _known.has_python = True
    _known.packages.update(packages)
    _known.folders.update(dict.fromkeys(folders, time.monotonic()))


def _await_executors(session: SparkSession, choice: EngineChoice, report: Tell) -> None:
    """Wait for the first executor up to the configured time, because Spark itself would wait without limit."""
    failed: list[Exception] = []
    done = threading.Event()

    def ask() -> None:
        try:
            session.range(1).count()
        except Exception as error:  # raised below, in the waiting thread
            failed.append(error)
        done.set()

    threading.Thread(target=ask, daemon=True, name="flow-first-executor").start()
    if not done.wait(min(_QUIET_SECONDS, choice.wait_seconds)):
        report(f"waiting for executors of {master_urls.shown_address(choice.address)}")
        done.wait(max(0.0, choice.wait_seconds - _QUIET_SECONDS))
    if not done.is_set():
        raise Unreachable(
            f"{master_urls.shown_address(choice.address)} gave this run no executor within {choice.wait_seconds:.0f} s",
            hint="a worker needs a free core and the memory that spark.executor.memory asks for (1g unless [spark] says "
            "otherwise): look at the cluster's page or at flow cluster status; wait = … below [spark] waits longer",
        )
    if failed:
        raise _explain_probe_error(failed[0])


def _count_cores(session: SparkSession) -> int:
    """Return the number of cores, counted until it is stable: some executors join a moment after the first."""
    slots = _parts(session)
    for _ in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS)
        now = _parts(session)
        if now == slots:
            break
        slots = now
    return slots


def _parts(session: SparkSession) -> int:
    """Return the number of partitions of a large range, which Spark splits into one per core."""
    parts = session.range(_ENOUGH_ROWS).selectExpr("spark_partition_id() AS part")
    return int(parts.selectExpr("max(part) + 1 AS parts").collect()[0]["parts"])


def _probe_executors(session: SparkSession, look: Callable[[int], str]) -> list[dict[str, Any]]:
    slots = max(1, _known.cores)
    try:
        rows = session.range(0, slots, 1, slots).select(f.udf(look, "string", useArrow=False)("id")).collect()
    except FlowError:
        raise
    except Exception as error:
        raise _explain_probe_error(error) from error
    return [json.loads(row[0]) for row in rows]


def _refuse_python(answer: dict[str, Any]) -> None:
    theirs, ours = answer["python"], list(sys.version_info[:3])
    if theirs[:2] != ours[:2]:
        raise ConfigError(
            f"worker {answer['host']} runs Python {_dotted(theirs)}, this process {_dotted(ours)}: "
            "functions travel only between equal versions",
            hint=_NAME_IT,
        )
    if answer["missing"]:
        names = ", ".join(answer["missing"])
        raise ConfigError(f"worker {answer['host']} has no {names} in its Python, {answer['program']}", hint=_BRING)


def _refuse_folders(answer: dict[str, Any], needs: TaskRequirements) -> None:
    for folder in answer["unseen"]:
        hint = "keep it on a file system that all machines mount at the same place, for the user that workers run as"
        if folder == str(needs.stage):
            hint = 'name a folder that all machines share: stage = "/mnt/…" below [spark], or EMATIX_FLOW_STAGE_DIR'
        raise ConfigError(
            f"worker {answer['host']} does not see {folder} of this machine, where tasks must read or write", hint=hint
        )


def _explain_probe_error(error: Exception) -> FlowError:
    """Return the error for a failed first job, in particular for problems with the Python of the workers."""
    text, ours = str(error), _dotted(sys.version_info[:2])
    if match := _NO_PROGRAM.search(text):
        return ConfigError(f"the workers have no Python at {match[1]}", hint=_NAME_IT)
    if "PYTHON_VERSION_MISMATCH" in text:
        theirs = next((version for version in re.findall(r"\b3\.\d+\b", text) if version != ours), "of another version")
        return ConfigError(
            f"the workers run Python {theirs}, this process {ours}: functions travel only between equal versions",
            hint=_NAME_IT,
        )
    if match := _NO_MODULE.search(text):
        return ConfigError(f"the workers' Python has no {match[1]}", hint=_BRING)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return RunFailed(
        f"the cluster did not do a first small job: {mask(first[:300])}",
        hint="flow run … --verbose shows the whole story",
    )


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


_ALWAYS = ("pyarrow",)


def task_requirements(read: Iterable[Any], written: Iterable[Any]) -> TaskRequirements:
    """Return the requirements for reading and writing these connections."""
    uses = [(backend_for(connection).tasks_reading, connection) for connection in read]
    uses += [(backend_for(connection).tasks_writing, connection) for connection in written]
    packages = {*_ALWAYS, *(name for use, _ in uses for name in use.packages)}
    folders: set[Path] = {folder for use, connection in uses for folder in use.folders(connection)}
    stage = parquet_stage.stage_root()
    return TaskRequirements(frozenset(packages), frozenset(folders - {stage}), stage if stage in folders else None)
