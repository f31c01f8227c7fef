"""The root of the command line: the table of commands, and the handling of their errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TextIO

import click

from ematix_flow.cli import exit_codes, failure
from ematix_flow.cli.handover import hand_over
from ematix_flow.cli.lazy import FlowGroup, Lazy
from ematix_flow.cli.moments import duration
from ematix_flow.cli.output import Output
from ematix_flow.foundation import interactive
from ematix_flow.foundation.early_jvm import start_early
from ematix_flow.foundation.redact import mask
from ematix_flow.observe.logs import mask_every_log_record

_HOME = "ematix_flow.cli.commands"
GROUPS = {
    "Build": {
        "init": Lazy(f"{_HOME}.init", "write a project that runs"),
        "list": Lazy(f"{_HOME}.listing", "list the pipelines, streams and transforms of a module"),
        "preview": Lazy(f"{_HOME}.preview", "show what a run would do, without changing anything"),
        "validate": Lazy(f"{_HOME}.validate", "check source, target and declaration against the real systems"),
        "dry-run": Lazy(f"{_HOME}.dry_run", "load, check and count, then roll back"),
    },
    "Run": {
        "run": Lazy(f"{_HOME}.run", "run pipelines now"),
        "backfill": Lazy(f"{_HOME}.backfill", "load windows of the past that are not loaded yet"),
        "transform": Lazy(f"{_HOME}.transform", "list and run named transforms", attribute="group"),
    },
    "Schedule": {
        "scheduler": Lazy(f"{_HOME}.scheduler", "run what is due, from a long-running process"),
        "run-due": Lazy(f"{_HOME}.run_due", "run what a schedule, a trigger or a retry makes due"),
        "retry": Lazy(f"{_HOME}.control", "retry a pipeline, whatever failed before", attribute="retry_command"),
        "pause": Lazy(f"{_HOME}.control", "stop firing pipelines until they are unpaused", attribute="pause_command"),
        "unpause": Lazy(f"{_HOME}.control", "fire paused pipelines again", attribute="unpause_command"),
        "send": Lazy(f"{_HOME}.send", "send a message that fires workflows"),
        "freshness-check": Lazy(f"{_HOME}.freshness_check", "check that every pipeline meets its freshness_sla"),
        "gaps": Lazy(f"{_HOME}.gaps", "show which windows of a pipeline are loaded, and which are missing"),
    },
    "Stream": {
        "consume": Lazy(f"{_HOME}.consume", "run a stream until it is stopped"),
        "consume-list": Lazy(f"{_HOME}.consume", "list the streams of a module", attribute="list_command"),
        "stream": Lazy(f"{_HOME}.stream", "show the status of streams; stop, rewind and repair one", attribute="group"),
        "dlq": Lazy(f"{_HOME}.dlq", "manage the messages that a stream could not process", attribute="group"),
    },
    "Inspect": {
        "status": Lazy(f"{_HOME}.status", "show each pipeline's last run, next due time and attempts"),
        "runs": Lazy(f"{_HOME}.runs", "show and control the run history", attribute="group"),
        "logs": Lazy(f"{_HOME}.logs", "show what a run printed and logged"),
    },
    "Set up": {
        "connections": Lazy(f"{_HOME}.connections", "list, check and set connections", attribute="group"),
        "secrets": Lazy(f"{_HOME}.secrets", "check whether references to secrets can be resolved", attribute="group"),
        "backends": Lazy(f"{_HOME}.backends", "list the systems that flow can read and write"),
        "engine": Lazy(f"{_HOME}.engine", "keep a Spark process ready for short runs", attribute="group"),
        "cluster": Lazy(f"{_HOME}.cluster", "manage a Spark cluster on this machine, for trials", attribute="group"),
        "doctor": Lazy(f"{_HOME}.doctor", "check everything that a run needs"),
        "version": Lazy(f"{_HOME}.version", "show the versions of flow, Python and pyspark"),
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
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        taken = hand_over(given)
        if taken is not None:
            return taken
        start_early(given)
    return in_this_process(given)


def in_this_process(given: Sequence[str]) -> int:
    """Run the command line in this process; return the exit code."""
    output = Output()
    interactive.detect()
    mask_every_log_record()
    warnings.showwarning = _warning(output)
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_a_character(stream)
    try:
        code = root.main(list(given), prog_name="flow", standalone_mode=False, obj=output)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        # The parser stops at the first error, which may come before --json.
        output.json = output.json or _asks_for_json(given)
        return failure.show(error, output)
    except (Exception, KeyboardInterrupt) as error:
        return failure.show(error, output)
    finally:
        _mention_engine(output)
    if code:
        return int(code)
    return exit_codes.BROKEN_PIPE if output.reader_left else exit_codes.OK


def _mention_engine(output: Output) -> None:
    """Print, after the command that started an engine, that it keeps running and how to stop it."""
    client = sys.modules.get("ematix_flow.engine.warm.client")
    engine = client.started_here() if client is not None else None
    if engine is not None:
        idle = duration(int(engine.idle_seconds * 1000))
        output.talk(
            f"engine {engine.pid} stays ready for {idle} · stop it: flow engine stop · "
            "never keep one: EMATIX_FLOW_KEEP_WARM=0"
        )


def _show_version(ctx: click.Context) -> None:
    from ematix_flow.cli.commands import version

    ctx.invoke(version.command)
    ctx.exit()


def _asks_for_json(arguments: Sequence[str]) -> bool:
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return any(word in ("--json", "--format=json") or (word, after) == ("--format", "json") for word, after in pairs)


def _warning(output: Output) -> Callable[..., None]:
    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int,
             file: TextIO | None = None, line: str | None = None) -> None:  # fmt: skip
        place = f" ({os.path.relpath(filename)}:{lineno})" if issubclass(category, UserWarning) else ""
        output.warn(mask(f"{message}{place}"))

    return show


def _never_fail_on_a_character(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
