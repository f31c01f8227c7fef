"""The root of the command line: the table of commands, and the handling of their errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TextIO

import click

from ematix_flow.cli.lazy import FlowGroup, LazyCommand
from ematix_flow.cli.render import failure
from ematix_flow.cli.render.output import Output
from ematix_flow.cli.render.units import format_seconds
from ematix_flow.cli.running.fork_client import run_in_fork_server
from ematix_flow.foundation import exit_codes, warm_engine
from ematix_flow.foundation.early_jvm import start_early
from ematix_flow.foundation.redact import mask
from ematix_flow.observe.logs import mask_every_log_record

GROUPS = {
    "Build": {
        "init": LazyCommand("build.init", "write a project that runs"),
        "list": LazyCommand("build.listing", "list the pipelines, streams and transforms of a module"),
        "preview": LazyCommand(
            "build.inspection:preview_command", "show what a run would do, without changing anything"
        ),
        "validate": LazyCommand(
            "build.inspection:validate_command", "check source, target and declaration against the real systems"
        ),
        "dry-run": LazyCommand("build.dry_run", "load, check and count, then roll back"),
    },
    "Run": {
        "run": LazyCommand("run.run", "run pipelines now"),
        "backfill": LazyCommand("run.backfill", "load windows of the past that are not loaded yet"),
        "transform": LazyCommand("run.transform:group", "list and run named transforms"),
    },
    "Schedule": {
        "scheduler": LazyCommand("schedule.scheduler", "run what is due, from a long-running process"),
        "run-due": LazyCommand("run.run_due", "run what a schedule, a trigger or a retry makes due"),
        "retry": LazyCommand("schedule.control:retry_command", "retry a pipeline, whatever failed before"),
        "pause": LazyCommand("schedule.control:pause_command", "stop firing pipelines until they are unpaused"),
        "unpause": LazyCommand("schedule.control:unpause_command", "fire paused pipelines again"),
        "send": LazyCommand("schedule.control:send_command", "send a message that fires workflows"),
        "freshness-check": LazyCommand("schedule.freshness_check", "check that every pipeline meets its freshness_sla"),
        "gaps": LazyCommand("schedule.gaps", "show which windows of a pipeline are loaded, and which are missing"),
    },
    "Stream": {
        "consume": LazyCommand("stream.consume", "run a stream until it is stopped"),
        "consume-list": LazyCommand("stream.consume:list_command", "list the streams of a module"),
        "stream": LazyCommand("stream.stream:group", "show the status of streams; stop, rewind and repair one"),
        "dlq": LazyCommand("stream.dlq:group", "manage the messages that a stream could not process"),
    },
    "Inspect": {
        "status": LazyCommand("inspect.status", "show each pipeline's last run, next due time and attempts"),
        "runs": LazyCommand("inspect.runs:group", "show and control the run history"),
        "logs": LazyCommand("inspect.logs", "show what a run printed and logged"),
    },
    "Set up": {
        "connections": LazyCommand("setup.connections:group", "list, check and set connections"),
        "secrets": LazyCommand("setup.secrets:group", "check whether references to secrets can be resolved"),
        "backends": LazyCommand("setup.backends", "list the systems that flow can read and write"),
        "engine": LazyCommand("setup.engine:group", "keep a Spark process ready for short runs"),
        "cluster": LazyCommand("setup.cluster:group", "manage a Spark cluster on this machine, for trials"),
        "doctor": LazyCommand("setup.doctor", "check everything that a run needs"),
        "version": LazyCommand("setup.version", "show the versions of flow, Python and pyspark"),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


class RootGroup(FlowGroup):
    """The root command, whose help ends with exit codes and environment variables."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, one section for each group."""
        width = max(map(len, self.lazy))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.summary) for name, entry in group.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write exit codes and variables, one per line."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.MEANINGS.items()])
        with formatter.section("Variables"):
            formatter.write_dl(
                [
                    ("EMATIX_FLOW_MODULE", "the module with the pipelines, instead of --module"),
                    ("EMATIX_FLOW_RUN_LOG_URL", "the run log, instead of --run-log"),
                    ("EMATIX_FLOW_RUN_LOG_PATH", "the run log as a plain path"),
                    ("EMATIX_FLOW_DSN_<NAME>", "the URL of the connection <name>"),
                    (
                        "EMATIX_FLOW_ENGINE",
                        "auto: join a warm engine if there is one; local: never join one; distributed: use a cluster",
                    ),
                    ("EMATIX_FLOW_KEEP_WARM", "1: keep an engine running for later commands; 0: never"),
                    ("EMATIX_FLOW_REORDER_JOINS", "0: do not reorder joins over lake tables"),
                    ("EMATIX_FLOW_MASTER", "the cluster: spark://host:7077, sc://host:15002, k8s://…"),
                    ("EMATIX_SKIP_QUALITY=1", "load without running the checks of expectations="),
                    ("FLOW_OUTPUT=json", "the same as --json"),
                    ("NO_COLOR", "no colours"),
                ]
            )


@click.command(
    cls=RootGroup,
    lazy=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, help="the same as `flow version`",
              callback=lambda ctx, _, value: _show_version(ctx) if value else None)  # fmt: skip
@click.pass_context
def root(ctx: click.Context) -> None:
    """Declare tables and loads in Python, run them on Spark.

    Data goes to stdout, everything else to stderr. Options such as --json are accepted in any position.
    """
    if ctx.invoked_subcommand is None:
        if ctx.obj.json:
            raise click.UsageError("no command was given", ctx=ctx)
        click.echo(ctx.get_help(), err=True)
        ctx.exit(exit_codes.USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, in a fork server if one accepts it, else in this process; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        taken = run_in_fork_server(words)
        if taken is not None:
            return taken
        start_early(words)
    return run_here(words)


def run_here(arguments: Sequence[str]) -> int:
    """Run the command line in this process; return the exit code."""
    output = Output()
    warm_engine.detect_interactive()
    mask_every_log_record()
    warnings.showwarning = _warning_printer(output)
    for stream in (sys.stdout, sys.stderr):
        _replace_unencodable(stream)
    try:
        code = root.main(list(arguments), prog_name="flow", standalone_mode=False, obj=output)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        # The parser stops at the first error, which may come before --json.
        output.json = output.json or _wants_json(arguments)
        return failure.report_failure(error, output)
    except (Exception, KeyboardInterrupt) as error:
        return failure.report_failure(error, output)
    finally:
        _print_engine_hint(output)
    if code:
        return int(code)
    return exit_codes.BROKEN_PIPE if output.reader_left else exit_codes.OK


def _print_engine_hint(output: Output) -> None:
    """Print, after the command that started an engine, that it keeps running and how to stop it."""
    client = sys.modules.get("ematix_flow.engine.warm.client")
    engine = client.engine_started_here() if client is not None else None
    if engine is not None:
        idle = format_seconds(engine.idle_seconds)
        output.info(
            f"engine {engine.pid} stays ready for {idle} · stop it: flow engine stop · "
            "never keep one: EMATIX_FLOW_KEEP_WARM=0"
        )


def _show_version(ctx: click.Context) -> None:
    from ematix_flow.cli.commands.setup import version

    ctx.invoke(version.command)
    ctx.exit()


def _wants_json(arguments: Sequence[str]) -> bool:
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return any(word in ("--json", "--format=json") or (word, after) == ("--format", "json") for word, after in pairs)


def _warning_printer(output: Output) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int,
             file: TextIO | None = None, line: str | None = None) -> None:  # fmt: skip
        place = f" ({os.path.relpath(filename)}:{lineno})" if issubclass(category, UserWarning) else ""
        output.warn(mask(f"{message}{place}"))

    return show


def _replace_unencodable(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
