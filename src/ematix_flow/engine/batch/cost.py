"""The cost of a run: seconds by step, processor seconds, and the engine and settings it used."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ematix_flow.dataplane.spark_session import is_sail_session
from ematix_flow.engine import warm
from ematix_flow.engine.batch.result import Listener, RunCost
from ematix_flow.engine.batch.step_clock import START, StepClock, ignore_events
from ematix_flow.engine.session import spark_settings
from ematix_flow.foundation.packages import __version__
from ematix_flow.foundation.processes import cpu_seconds
from ematix_flow.foundation.redact import MASK, is_secret_name, mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL, WARM, CLUSTER, REMOTE = "local", "warm", "cluster", "remote"
_LONGEST_VALUE = 200
# Different in every process, so they carry no information about a run.
_INCIDENTAL = (
    "spark.app.", "spark.driver.port", "spark.executor.id", "spark.submit.", "spark.repl.", "spark.serializer.object",
    "spark.rdd.compress", "spark.hadoop.fs.s3a.vectored", "spark.driver.appUI", "spark.connect.grpc.binding.port",
    "spark.sql.artifact.",
)  # fmt: skip


class CostMeter:
    """The cost measurement of one run, from its creation to the first call of `cost()`."""

    def __init__(self, pipeline: str, emit: Listener = ignore_events) -> None:
        self.clock = StepClock(pipeline, emit)
        self._before = cpu_seconds([os.getpid(), *_warm_processes()]) or {}
        self._cost: RunCost | None = None

    def cost(self) -> RunCost:
        """Return the cost of the run, called at its end; later calls return the same value."""
        if self._cost is None:
            steps = self.clock.steps()
            session = self._session()
            self._cost = RunCost(steps, session, self._cpu_seconds(session))
        return self._cost

    def settings(self) -> dict[str, str]:
        """Return all explicit settings of the session, secrets masked; empty when the run had no session."""
        spark = self.clock.session
        return settings_of(spark) if spark is not None else {}

    def _session(self) -> dict[str, Any] | None:
        spark = self.clock.session
        if spark is None:
            return None
        place = session_location(spark)
        came = "joined" if place["kind"] in (WARM, REMOTE) and self.clock.session_came == "started" else None
        return {**place, "how": came or self.clock.session_came, "seconds": round(self.clock.seconds(START), 3)}

    def _cpu_seconds(self, session: Mapping[str, Any] | None) -> float | None:
        """Return processor seconds of this process tree and of a joined warm engine; None on clusters or if unknown."""
        processes = [os.getpid()]
        if session is not None:
            if session["kind"] == WARM:
                processes.append(session["pid"])
            elif session["kind"] != LOCAL or "PYSPARK_GATEWAY_PORT" in os.environ:  # there the JVM is the parent
                return None
        now = cpu_seconds(processes) or {}
        if not all(pid in now for pid in processes):
            return None
        # A process that did not exist before is an engine that this run started.
        return round(max(0.0, sum(now[pid] - self._before.get(pid, 0.0) for pid in processes)), 2)


def component_versions() -> dict[str, str]:
    """Return the versions of this package, Python and pyspark."""
    by_component = {"ematix-flow": __version__, "python": platform.python_version()}
    pyspark = sys.modules.get("pyspark")
    return {**by_component, "pyspark": str(pyspark.__version__)} if pyspark is not None else by_component


def session_location(spark: SparkSession) -> dict[str, Any]:
    """Return where a session's work is done, without secrets."""
    if not _is_remote(spark):
        master = str(spark.sparkContext.master)
        return {"kind": LOCAL if master.startswith("local") else CLUSTER, "engine": mask(master)}
    if is_sail_session(spark):  # a server inside this process
        return {"kind": LOCAL, "engine": "sail"}
    connected: Any = spark
    client = connected.client
    endpoint = str(getattr(getattr(client, "_builder", None), "endpoint", client.host))
    for engine in warm.engines():
        if endpoint in (f"localhost:{engine.port}", f"127.0.0.1:{engine.port}"):
            return {"kind": WARM, "engine": "warm", "pid": engine.pid}
    return {"kind": REMOTE, "engine": mask(f"sc://{endpoint}")}


def settings_of(spark: SparkSession) -> dict[str, str]:
    """Return all explicit settings of a session; empty when it no longer answers."""
    settings: dict[str, str] = {}
    with suppress(Exception):  # a failure to measure cost must not fail the run
        settings = dict(spark.conf.getAll) if _is_remote(spark) else _of_this_jvm(spark)
    return {
        name: _shown_setting(name, value)
        for name, value in sorted(settings.items())
        if not name.startswith(_INCIDENTAL)
    }


def _of_this_jvm(spark: SparkSession) -> dict[str, str]:
    """Return the start settings and those tuned per run: few calls, where reading all settings takes a hundred."""
    text = spark.sparkContext._conf.toDebugString()
    settings = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("spark.") and "=" in line)
    tuned = [item.name for item in spark_settings.run_settings(None, cores=1)]
    now = {name: spark.conf.get(name, None) for name in tuned}
    return {**settings, **{name: str(value) for name, value in now.items() if value is not None}}


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _shown_setting(name: str, value: str) -> str:
    if is_secret_name(name):
        return MASK
    text = mask(value)
    return text if len(text) <= _LONGEST_VALUE else _shortened(text)


def _shortened(value: str) -> str:
    """Return the beginning of a long value, with its length and hash to distinguish it from others."""
    import hashlib

    return f"{value[:_LONGEST_VALUE]}… ({len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()[:8]})"


def _warm_processes() -> list[int]:
    """Return the process ids of warm engines that the run may join."""
    with suppress(OSError, ValueError):
        return [engine.pid for engine in warm.engines()]
    return []
