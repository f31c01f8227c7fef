"""The context of a run: resolved connections, backends, target shapes, and the Spark session, started on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.backends.catalog import backend_for, batch_refusal
from ematix_flow.config.resolve import resolve
from ematix_flow.config.spark import spark_config
from ematix_flow.contract.backend import Backend, BatchSink, DdlPlanner
from ematix_flow.contract.shape import TargetShape, shape_of
from ematix_flow.dataplane import parquet_stage
from ematix_flow.declare.engine import DISTRIBUTED, SAIL, EngineOptions
from ematix_flow.declare.loads import LoadSpec
from ematix_flow.declare.pipeline import PipelineSpec, as_tuple
from ematix_flow.engine.batch.source import source_connection
from ematix_flow.engine.batch.step_clock import StepClock
from ematix_flow.engine.cluster.executors import task_requirements
from ematix_flow.engine.sail import sail_server
from ematix_flow.engine.session import session, spark_settings
from ematix_flow.engine.session.engine_choice import choose_engine
from ematix_flow.engine.session.spark_settings import Setting
from ematix_flow.foundation.errors import ConfigError, FlowError, PlanError, Unsupported
from ematix_flow.foundation.redact import mask
from ematix_flow.planning.lanes import is_small
from ematix_flow.storage.paths import holds_few_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARALLELISM_VARIABLE = "EMATIX_FLOW_PARALLELISM"
USUAL_PARALLELISM = 8


class PlainFunction(PlanError, TypeError):
    """Raised for a plain function, which has no plan because its effects are unknown."""


@dataclass(frozen=True)
class TargetContext:
    """One target with everything needed to open it."""

    load: LoadSpec
    connection: Any
    backend: Backend
    shape: TargetShape
    sink: BatchSink
    ddl: DdlPlanner


@dataclass
class RunSession:
    """The session of a run; what is known about the work when it is first needed decides how it is started."""

    spec: PipelineSpec
    targets: tuple[TargetContext, ...]
    source: Any
    """The connection of the source."""
    source_backend: Backend
    """The backend of the declared source."""
    others: tuple[Backend, ...]
    """Further backends that the run reads from."""
    clock: StepClock
    joined: tuple[Any, ...] = ()
    """Connections of additional systems that a statement reads from."""
    rows: int | None = None
    """The number of rows that the source reports."""
    is_little: bool = False
    """Whether the tables of the query are small; used where their rows are not counted."""
    in_arrow: bool = False
    """Whether the only target's rows pass only through the Python part of tasks, so that the JVM has little work."""

    def add_systems(self, connections: Sequence[Any]) -> None:
        """Add systems that a statement joins."""
        self.others += tuple(backend_for(connection) for connection in connections)
        self.joined += tuple(connections)

    def start(self) -> SparkSession:
        """Return the session, started on first use with the jars of all backends involved."""
        used = (self.source_backend, *self.others, *(item.backend for item in self.targets))
        needed = {jar for backend in used for jar in backend.jars}
        with self.clock.starting():
            self.clock.session = session.spark_session(
                needed,
                is_small=self._is_small,
                engine=self.spec.engine,
                tasks=lambda: task_requirements(
                    (self.source, *self.joined), [item.connection for item in self.targets]
                ),
                report=self.clock.on_start_message,
                is_in_use=self.clock.session is not None,
            )
        session.apply_run_settings(self.tuned)
        return self.clock.session

    @property
    def _is_small(self) -> bool:
        """Return whether the JVM has little work: few rows or Arrow batches to read, and little to compare them with.

        While the number of rows is unknown, the sizes of the files decide.
        """
        sources = self.source_backend.tasks_reading.folders(self.source)
        if self.in_arrow and not self.spec.transforms_post and not any(item.load.checks for item in self.targets):
            is_little = True
        elif self.rows is not None:
            is_little = is_small(self.rows)
        else:
            is_little = self.is_little or (
                bool(sources) and len(as_tuple(self.spec.source_connection)) == 1 and all(map(holds_few_bytes, sources))
            )
        compared = [item for item in self.targets if item.load.strategy.mode not in ("append", "truncate")]
        folders = [folder for item in compared for folder in item.backend.tasks_writing.folders(item.connection)]
        return is_little and all(map(holds_few_bytes, folders))

    @property
    def tuned(self) -> list[Setting]:
        """Return the Spark settings of this run alone."""
        is_local = choose_engine(self.spec.engine).is_local
        cores = (os.cpu_count() or 2) if is_local else session.cluster_cores(self.spec.engine)
        return spark_settings.run_settings(self.rows, cores=cores) if cores else []


@dataclass(frozen=True)
class RunContext:
    """One run: its targets, its session, its clock, and the resources to close at its end."""

    spec: PipelineSpec
    loads: tuple[TargetContext, ...]
    session: RunSession
    clock: StepClock
    open_until: ExitStack = field(default_factory=ExitStack)

    def spark(self) -> SparkSession:
        """Return the session, started on first use."""
        return self.session.start()

    def close(self) -> None:
        """Close the run's resources; errors are only logged, because the run's outcome is already known."""
        try:
            self.open_until.close()
        except Exception as exc:  # for example a lost server or a stopped session
            import logging

            logging.getLogger(__name__).debug("closing: %s", mask(str(exc)))

    @property
    def is_one_database(self) -> bool:
        """Return whether the rows can stay inside their database, so that no engine is needed."""
        backend = backend_for(self.session.source)
        if backend.identity is None or any(load.backend is not backend for load in self.loads):
            return False
        source = backend.identity(self.session.source)
        return all(backend.identity(load.connection) == source for load in self.loads)


def open_context(spec: PipelineSpec, clock: StepClock | None = None) -> RunContext:
    """Return the context of a run; raise FlowError for what its systems do not support."""
    if not spec.loads:
        raise PlainFunction(
            f"{spec.name} is a plain function: there is no plan to show, and no dry run",
            where=spec.where,
            hint="run it, or declare the load with @ematix.pipeline",
        )
    parquet_stage.set_stage_folder(spark_config().stage)
    try:
        source = source_connection(spec)
        source_backend, *others = [_require_readable(item) for item in _sources(spec, source)]
        loads = tuple(_load_context(load) for load in spec.loads)
        if choose_engine(spec.engine).engine == SAIL:
            sail_server.refuse_transforms(spec, loads[0].backend)
            for item in loads:
                sail_server.refuse_unsupported(item.backend, item.connection, item.load)
    except FlowError as exc:
        exc.at(spec.where)
        raise
    clock = clock or StepClock(spec.name)
    return RunContext(spec, loads, RunSession(spec, loads, source, source_backend, tuple(others), clock), clock)


def _sources(spec: PipelineSpec, first: Any) -> list[Any]:
    named = spec.source_connection
    listed = named[1:] if isinstance(named, (list, tuple)) else ()
    return [first, *(resolve(item).connection for item in listed)]


def _require_readable(connection: Any) -> Backend:
    backend = backend_for(connection)
    if backend.batch_source is None:
        raise batch_refusal(backend, reading=True)
    return backend


def _load_context(load: LoadSpec) -> TargetContext:
    connection = resolve(load.connection).connection
    backend = backend_for(connection)
    mode = load.strategy.mode
    if backend.batch_sink is None:
        raise batch_refusal(backend, reading=False)
    if backend.ddl is None or mode not in backend.strategies:
        offered = ", ".join(sorted(backend.strategies)) or "nothing"
        raise Unsupported(f"{backend.title} does not offer mode={mode!r}", hint=f"it offers {offered}")
    shape = shape_of(load.table, load.strategy)
    return TargetContext(load, connection, backend, shape, backend.batch_sink(connection), backend.ddl(connection))


def announce_pipelines(specs: Sequence[PipelineSpec]) -> None:
    """Announce the jars of all these pipelines, so that one session serves them."""
    for spec in specs:
        for named in (*as_tuple(spec.source_connection), *(load.connection for load in spec.loads)):
            with suppress(FlowError):  # raised when that pipeline runs
                session.announce_jars(backend_for(resolve(named).connection).jars, one_pipeline=len(specs) == 1)


def parallelism(options: EngineOptions | None = None, *, start: Callable[[], object] | None = None) -> int:
    """Return the number of parallel read tasks, one per core; on a cluster `start` may be called to count its cores."""
    own = os.environ.get(PARALLELISM_VARIABLE, "").strip()
    if own:
        if not own.isdigit() or int(own) < 1:
            raise ConfigError(f"{PARALLELISM_VARIABLE}={own} is not a number of tasks", hint="give a whole number")
        return int(own)
    choice = choose_engine(options)
    if choice.engine != DISTRIBUTED:
        return os.cpu_count() or 2
    known = session.cluster_cores(options) or _requested_cores(choice.settings)
    if known is None and start is not None:
        start()
        known = session.cluster_cores(options)
    return known or USUAL_PARALLELISM


def _requested_cores(settings: Mapping[str, str]) -> int | None:
    most = settings.get("spark.cores.max", "")
    if most.isdigit():
        return int(most)
    executors, each = settings.get("spark.executor.instances", ""), settings.get("spark.executor.cores", "1")
    return int(executors) * int(each) if executors.isdigit() and each.isdigit() else None
