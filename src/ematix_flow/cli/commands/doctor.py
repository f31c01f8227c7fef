"""The command `flow doctor`: checks the environment of runs, Spark's settings or the checkpoint of a stream."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import click

from ematix_flow.cli import exit_codes
from ematix_flow.cli import module as modules
from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.health import HealthReport, Skip, check_connection, examine, worst
from ematix_flow.cli.history import RunLogChoice
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.output import Output
from ematix_flow.cli.stream_choice import chosen, stream_options
from ematix_flow.foundation.errors import FlowError, RunFailed

_HEADER = ("NAME", "KIND", "STATUS", "MS", "DETAIL")
_OLDEST_PYTHON = (3, 10)


@click.command("doctor", cls=FlowCommand)
@click.argument("about", required=False, type=click.Choice(["spark", "checkpoint"]))
@click.argument("stream", required=False)
@stream_options
@run_log_options
@click.pass_obj
def command(output: Output, about: str | None, stream: str | None, module: str | None, config: str | None,
            run_log_choice: RunLogChoice) -> int:  # fmt: skip
    """Check what a run needs: Python, Java, Spark, jars, run log, module and connections.

    `flow doctor spark` shows the engine that runs the work, and every setting of it that is not Spark's default, each
    with its reason. `flow doctor checkpoint STREAM` checks the checkpoint of a stream: its logs, its generation, what
    its source still has, and whether its targets agree; it exits with 1 if something is damaged.
    """
    if about == "spark":
        return _settings(output)
    if about == "checkpoint":
        return _checkpoint(output, stream, module, config, run_log_choice)
    reports = list(_examined(module, run_log_choice))
    if output.json:
        output.document([report.to_dict() for report in reports])
    else:
        output.table([_row(report) for report in reports], header=_HEADER)
        for report in reports:
            if report.is_fail and report.hint:
                output.talk(f"next for {report.name}: {report.hint}")
    return worst(reports)


def _settings(output: Output) -> int:
    from dataclasses import asdict

    from ematix_flow.engine import jars, profile
    from ematix_flow.engine.choice import choose

    choice = choose()
    chosen = profile.Setting("engine", choice.shown, choice.reason)
    accelerator = profile.accelerator(choice)
    native = profile.Setting("accelerator", "none", "none is on the class path: Comet, Gluten and RAPIDS are known")
    if accelerator is not None:
        used = "none" if accelerator.obstacle else accelerator.accelerator.title
        native = profile.Setting("accelerator", used, f"{accelerator}: {accelerator.obstacle or 'it fits this Spark'}")
    found = [chosen, native, profile.join_order(choice), *profile.settings(jars.read_lock(), choice=choice)]
    if output.json:
        output.document([{**asdict(item), "value": item.shown} for item in found])
    else:
        output.table(
            [(item.name, _short(item.shown), item.reason) for item in found], header=("SETTING", "VALUE", "WHY")
        )
    return 0


def _checkpoint(
    output: Output, stream: str | None, module: str | None, config: str | None, choice: RunLogChoice
) -> int:
    from ematix_flow.cli.commands.stream import show_findings
    from ematix_flow.engine.streams.checkup import judge
    from ematix_flow.engine.streams.findings import is_damaged
    from ematix_flow.engine.streams.inspection import look
    from ematix_flow.engine.streams.standing import standing

    spec = chosen(stream, module, config)
    run_log = choice.for_reading()
    try:
        told = standing(run_log, spec.name)
    finally:
        run_log.close()
    findings = judge(look(spec, holder=told.worker if told.is_running else None))
    if output.json:
        output.document({"pipeline": spec.name, "findings": [item.to_dict() for item in findings]})
    else:
        show_findings(output, findings)
    return exit_codes.RUN_FAILED if is_damaged(findings) else exit_codes.OK


def _short(value: str) -> str:
    return value if len(value) <= 48 else f"{value[:45]}…"


def _examined(module: str | None, run_log: RunLogChoice) -> Iterator[HealthReport]:
    yield examine("python", "program", _python)
    yield examine("java", "program", _java)
    yield examine("pyspark", "package", _pyspark)
    yield examine("jars", "cache", _jars)
    yield examine("run log", "history", lambda: _run_log(run_log))
    yield examine("module", "pipelines", lambda: _module(module))
    from ematix_flow.config.resolve import list_entries

    try:
        entries = list_entries()
    except FlowError as error:
        yield HealthReport("connections", "config", "fail", error.what, hint=error.hint, exit_code=error.exit_code)
        return
    for entry in entries:
        yield check_connection(entry.name)


def _python() -> str:
    if sys.version_info < _OLDEST_PYTHON:
        raise RunFailed(f"Python {platform.python_version()} is too old", hint="use Python 3.10 or newer")
    return platform.python_version()


def _java() -> str:
    from ematix_flow.engine.java import find_java, java_version

    program = find_java()
    return f"{java_version(program)} at {program}"


def _pyspark() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise RunFailed("pyspark is not installed", hint="pip install ematix-flow-spark") from None


def _jars() -> str:
    from ematix_flow.engine.jars import cache_folder, read_lock

    folder = cache_folder()
    wanted = {jar.file_name for jars in read_lock().values() for jar in jars}
    there = {name for name in wanted if (folder / name).is_file()}
    if there != wanted:
        raise Skip(f"{len(there)} of {len(wanted)} in {folder}; the others are fetched when they are first needed")
    return f"{len(wanted)} in {folder}"


def _run_log(choice: RunLogChoice) -> str:
    from ematix_flow.runlog.urls import from_url

    if choice.off:
        raise Skip("switched off")
    from_url(choice.address).close()
    return choice.shown()


def _module(asked: str | None) -> str:
    from ematix_flow.declare import registry

    if asked is None and modules.wanted_by_default() is None:
        raise Skip("no module named; pass --module to check one")
    loaded = modules.load(asked)
    count = len(registry.pipelines())
    return f"{loaded.name}: {count} {'pipeline' if count == 1 else 'pipelines'}, no circles"


def _row(report: HealthReport) -> tuple[str, ...]:
    return report.name, report.kind, report.status, str(report.elapsed_ms), report.detail.splitlines()[0]
