"""The commands `flow consume` and `flow consume-list`: run a stream, list the streams of a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.cli.flags import module_option, run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.loading.stream_choice import chosen_stream
from ematix_flow.cli.render.names import name_of
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.stream_progress import StreamProgress
from ematix_flow.declare.streams import registry as streams

if TYPE_CHECKING:
    from ematix_flow.declare.streams.spec import Restarts, StreamSpec


@click.command("consume", cls=FlowCommand)
@click.argument("stream", required=False, metavar="[PIPELINE_TOML | NAME]")
@module_option
@click.option("--once", is_flag=True, help="process the available data, then stop")
@click.option("--trigger", metavar="INTERVAL", help='start a batch every INTERVAL, for example "5 seconds"')
@click.option("--metrics-port", type=click.IntRange(0, 65_535), metavar="PORT",
              help="serve Prometheus metrics at 127.0.0.1:PORT/metrics")  # fmt: skip
@click.option("--restart-on-error", is_flag=True, help="restart after a transient error")
@click.option("--initial-backoff-ms", type=click.IntRange(min=1), metavar="MS",
              help="wait before the first restart; doubled for each further one  [default: 1000]")  # fmt: skip
@click.option("--max-backoff-ms", type=click.IntRange(min=1), metavar="MS",
              help="longest wait before a restart  [default: 60000]")  # fmt: skip
@click.option("--reset-backoff-after-secs", type=click.FloatRange(min=0), metavar="SECONDS",
              help="reset the restart count after this long without an error  [default: 300]")  # fmt: skip
@click.option("--max-restarts", type=click.IntRange(min=0), metavar="N",
              help="stop after N restarts in a row  [default: unlimited]")  # fmt: skip
@run_log_options
@click.pass_obj
def command(output: Output, /, stream: str | None, module: str | None, once: bool, trigger: str | None,
            metrics_port: int | None, run_log_choice: RunLogOptions, **restarts: Any) -> None:  # fmt: skip
    """Run a stream, given by its TOML file or by its name in a module.

    Without an argument it runs the stream of ./pipeline.toml, or the only stream of the module. SIGTERM and Ctrl-C stop
    it between two batches; the next start continues from there.
    """
    if once and trigger is not None:
        raise click.UsageError("--once reads what is there as fast as it can; leave out --trigger")
    spec = chosen_stream(stream, module)
    from ematix_flow.declare.streams.rules import trigger_of
    from ematix_flow.streaming.runtime import runner

    spec = replace(spec, restarts=_restart_policy(spec.restarts, restarts), trigger=trigger_of(trigger) or spec.trigger)
    port = metrics_port if metrics_port is not None else spec.metrics_port
    with run_log_choice.writing(output) as run_log:
        output.info(f"{spec.name}: {_route(spec)}")
        with StreamProgress(spec.name, output) as progress, modules.stdout_to_stderr():
            outcome = runner.run_stream(spec, once=once, metrics_port=port, run_log=run_log, listener=progress)
    rows, batches = outcome.get("total_rows", 0), outcome.get("iterations", 0)
    output.result({"pipeline": spec.name, **outcome}, f"{spec.name}  {rows:,} rows in {batches:,} batches")


@click.command("consume-list", cls=FlowCommand)
@module_option
@click.pass_obj
def list_command(output: Output, module: str | None) -> None:
    """List the streams of a module, by name."""
    loaded = modules.load_module(module)
    specs = {name: stream.spec for name, stream in sorted(streams.streams().items())}
    document = {"pipelines": list(specs), "streams": [_entry(spec) for spec in specs.values()]}
    empty = f"{loaded.name} declares no streams; decorate a function with @ematix.streaming_pipeline(…)"
    output.listing(document, [(name, _route(spec)) for name, spec in specs.items()], empty=empty)


def _restart_policy(declared: Restarts, options: Mapping[str, Any]) -> Restarts:
    """Return the declared restart policy, overridden by the options of the command line."""
    changes = {
        "on_error": True if options["restart_on_error"] else None,
        "initial_backoff_ms": options["initial_backoff_ms"],
        "max_backoff_ms": options["max_backoff_ms"],
        "max_restarts": options["max_restarts"],
        "reset_after_secs": options["reset_backoff_after_secs"],
    }
    restarts = replace(declared, **{name: value for name, value in changes.items() if value is not None})
    if restarts.max_backoff_ms < restarts.initial_backoff_ms:
        raise click.UsageError("the longest wait is shorter than the first one: --max-backoff-ms")
    return restarts


def _entry(spec: StreamSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "sources": [{"query": one.query, "connection": name_of(one.connection)} for one in spec.sources],
        "targets": [{"name": one.name, "connection": name_of(one.connection)} for one in spec.targets],
        "where": str(spec.where) if spec.where else None,
    }


def _route(spec: StreamSpec) -> str:
    sources = ", ".join(f"{one.query} ({name_of(one.connection)})" for one in spec.sources)
    targets = ", ".join(f"{one.name} ({name_of(one.connection)})" for one in spec.targets)
    return f"{sources} → {targets}"
