"""The `ematix` namespace: decorators that build and register declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import update_wrapper
from typing import Any

from ematix_flow.declare import registry
from ematix_flow.declare.connections import connection as _connection
from ematix_flow.declare.endpoints import Target
from ematix_flow.declare.pipeline import PipelineOptions, PipelineSpec, pipeline_from
from ematix_flow.declare.registry import TransformRef, TransformSpec
from ematix_flow.declare.streams import registry as streams
from ematix_flow.declare.streams.options import StreamError, StreamOptions, stream_from
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.declare.table import ManagedTable
from ematix_flow.declare.table import table as _table
from ematix_flow.declare.workflow import Workflow, register_workflow
from ematix_flow.foundation.errors import DeclarationError
from ematix_flow.foundation.location import caller
from ematix_flow.foundation.signatures import with_signature_of


class DecoratedPipeline:
    """A decorated function: call it to run the load.

    `sync(**overrides)` runs it with some keywords changed, `preview()` returns the plan, `dry_run()` loads and rolls
    back, `validate()` checks the declaration against the real systems.
    """

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        update_wrapper(self, spec.function)

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.spec.name

    @property
    def target(self) -> str:
        """The name of the first target's table; empty for a plain function."""
        return self.spec.loads[0].table.qualified if self.spec.loads else ""

    def __call__(self) -> Any:
        return self.sync()

    @with_signature_of(PipelineOptions)
    def sync(self, *, accept_deletes: int | None = None, **overrides: Any) -> Any:
        """Run the pipeline now and return its result; keywords override those of the decorator for this run."""
        from ematix_flow.engine.batch import pipeline_run
        from ematix_flow.engine.batch.post_load import own_exceptions

        with own_exceptions():
            return pipeline_run.run(self.spec, overrides=overrides, run_log=_run_log(), accept_deletes=accept_deletes)

    def preview(self, *, rows: int = 0) -> Any:
        """Return the plan of a run; changes nothing."""
        from ematix_flow.engine.batch.preview import preview

        return preview(self.spec, rows=rows)

    @with_signature_of(PipelineOptions)
    def dry_run(self, *, accept_deletes: int | None = None, **overrides: Any) -> Any:
        """Stage, check and count, then roll back; return the result."""
        from ematix_flow.engine.batch import pipeline_run

        return pipeline_run.dry_run(self.spec, overrides=overrides, accept_deletes=accept_deletes)

    def validate(self) -> Any:
        """Check source, target and declaration against the real systems; return the errors found."""
        from ematix_flow.engine.batch.preview import validate

        return validate(self.spec)

    def __repr__(self) -> str:
        return f"<pipeline {self.spec.name} at {self.spec.where}>"


class DecoratedStream:
    """A decorated function: call it to run the stream until it is stopped.

    `toml()` returns the same stream as a TOML document.
    """

    def __init__(self, spec: StreamSpec, function: Callable[[], Any]) -> None:
        self.spec = spec
        update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.spec.name

    def __call__(self, *, once: bool = False, metrics_port: int | None = None, run_log_url: str | None = None) -> Any:
        from ematix_flow.streaming.python_api import run_stream

        return run_stream(self.spec, once=once, metrics_port=metrics_port, run_log_url=run_log_url)

    def toml(self) -> str:
        """Return the declaration as TOML, without secrets."""
        from ematix_flow.config.stream_render import render

        return render(self.spec)

    def __repr__(self) -> str:
        return f"<stream {self.spec.name} at {self.spec.where}>"


def _run_log() -> Any:
    from ematix_flow.run_log.default import default_run_log

    return default_run_log()


class Ematix:
    """The namespace of all decorators and functions that a module of pipelines needs."""

    def connection(self, cls: type) -> Any:
        """Class decorator: declare a connection; `kind` and the fields of that kind are class attributes."""
        return _connection(cls)

    def table(self, *, schema: str, name: str | None = None) -> Callable[[type], type[ManagedTable]]:
        """Class decorator: declare a table from annotated columns."""
        return _table(schema=schema, name=name)

    @with_signature_of(PipelineOptions)
    def pipeline(self, **options: Any) -> Callable[[Callable[..., Any]], DecoratedPipeline]:
        """Function decorator: declare a pipeline; the function returns the source, the keywords define the targets."""
        where = caller()
        parsed = PipelineOptions.parse(options, where)

        def decorate(function: Callable[..., Any]) -> DecoratedPipeline:
            pipeline = DecoratedPipeline(pipeline_from(function, parsed, where))
            registry.register_pipeline(pipeline)
            return pipeline

        return decorate

    job = pipeline

    @with_signature_of(StreamOptions)
    def streaming_pipeline(self, **options: Any) -> Callable[[Callable[[], Any]], DecoratedStream]:
        """Function decorator: declare a stream by its keywords; the function takes no arguments and gives the name."""
        where = caller()
        parsed = StreamOptions.parse(options, where, door="@ematix.streaming_pipeline")

        def decorate(function: Callable[[], Any]) -> DecoratedStream:
            if not callable(function) or inspect.signature(function).parameters:
                raise StreamError(
                    f"stream {getattr(function, '__name__', function)!s} takes arguments", where=where,
                    hint="the function of a stream takes none; source= defines where rows come from",
                )  # fmt: skip
            named = replace(parsed, name=parsed.name or str(getattr(function, "__name__", "")) or None)
            stream = DecoratedStream(stream_from(named, where), function)
            streams.register(stream)
            return stream

        return decorate

    def target(self, target_class: type[ManagedTable], *, mode: str, target_connection: Any = None,
               keys: Sequence[str] | None = None, update_columns: Sequence[str] | None = None,
               compare_columns: Sequence[str] | None = None, event_timestamp_column: str | None = None,
               handle_deletes: str | None = None, column_map: Mapping[str, str] | None = None) -> Target:  # fmt: skip
        """Return one target for a pipeline with several targets."""
        return Target(
            connection=target_connection, table=target_class, mode=mode, keys=keys, update_columns=update_columns,
            compare_columns=compare_columns, event_timestamp_column=event_timestamp_column,
            handle_deletes=handle_deletes, column_map=column_map,
        )  # fmt: skip

    def transform(self, *, name: str | None = None, target_connection: Any = None,
                  schedule: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
        """Function decorator: declare a named step with the arguments (conn) or (conn, parent)."""
        where = caller()

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            arity = len(inspect.signature(function).parameters)
            if arity not in (1, 2):
                raise _WrongArity(f"transform {function.__name__} takes {arity} arguments", where=where,
                                  hint="take (conn) or (conn, parent)")  # fmt: skip
            registry.register_transform(
                TransformSpec(name or function.__name__, function, arity, target_connection, schedule, where)
            )
            return function

        return decorate

    def transform_ref(self, name: str) -> TransformRef:
        """Return a reference to a transform or pipeline by name, resolved when it runs."""
        if not isinstance(name, str):
            raise TypeError(f"transform_ref takes a name, not {name!r}")
        return TransformRef(name)

    def workflow(self, *, name: str, jobs: Any, triggered_by: Any = None, schedule: str | None = None,
                 timezone: str | None = None, on_message: Any = None, depends_on: Any = None) -> Workflow:  # fmt: skip
        """Declare a group of jobs, and what fires it: a schedule, a message, or the success of other jobs."""
        return register_workflow(
            name=name, jobs=jobs, triggered_by=triggered_by, schedule=schedule, timezone=timezone,
            on_message=on_message, depends_on=depends_on, where=caller(),
        )  # fmt: skip

    def read(self, connection: Any, table_or_query: str) -> Any:
        """Return a table or query of a connection as a Spark DataFrame."""
        from ematix_flow.engine.batch.read import read_frame

        return read_frame(connection, table_or_query)


class _WrongArity(DeclarationError, TypeError):
    """Raised for a transform function with an unsupported number of arguments."""


ematix = Ematix()
