"""The command `flow doctor`: checks the environment of runs, Spark's settings or the checkpoint of a stream."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from contextlib import closing

import click

from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.loading.stream_choice import chosen_stream, stream_options
from ematix_flow.cli.render.output import Output
from ematix_flow.engine.connections.health import (
    CheckSkipped,
    HealthReport,
    check_connection,
    first_failure_code,
    run_check,
)
from ematix_flow.foundation import exit_codes
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
            run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Check what a run needs: Python, Java, Spark, jars, run log, module and connections.

    `flow doctor spark` shows the engine that runs the work, and every setting of it that is not Spark's default, each
    with its reason. `flow doctor checkpoint STREAM` checks the checkpoint of a stream: its logs, its generation, what
    its source still has, and whether its targets agree; it exits with 1 if something is damaged.
    """
    if about == "spark":
        return _settings(output)
    if about == "checkpoint":
        return _checkpoint(output, stream, module, config, run_log_choice)
    reports = list(_run_checks(module, run_log_choice))
    output.listing([report.to_dict() for report in reports], [_row(report) for report in reports], header=_HEADER)
    for report in reports:
        if report.is_fail and report.hint:
            output.info(f"next for {report.name}: {report.hint}")
    return first_failure_code(reports)


def _settings(output: Output) -> int:
    from dataclasses import asdict

    from ematix_flow.engine.session import jars, spark_settings
    from ematix_flow.engine.session.engine_choice import choose_engine

    choice = choose_engine()
    accelerator = spark_settings.accelerator(choice)
    used, reason = "none", "none is on the class path: Comet, Gluten and RAPIDS are known"
    if accelerator is not None:
        used = "none" if accelerator.obstacle else accelerator.accelerator.title
        reason = f"{accelerator}: {accelerator.obstacle or 'it fits this Spark'}"
    settings = [
        spark_settings.Setting("engine", choice.display, choice.reason),
        spark_settings.Setting("accelerator", used, reason),
        spark_settings.join_order(choice),
        *spark_settings.settings(jars.read_lock(), choice=choice),
    ]
    rows = [(item.name, _short(item.display_value), item.reason) for item in settings]
    document = [{**asdict(item), "value": item.display_value} for item in settings]
    output.listing(document, rows, header=("SETTING", "VALUE", "WHY"))
    return 0


def _checkpoint(
    output: Output, stream: str | None, module: str | None, config: str | None, choice: RunLogOptions
) -> int:
    from ematix_flow.cli.commands.stream.stream import print_findings
    from ematix_flow.streaming.admin.check_findings import is_damaged
    from ematix_flow.streaming.admin.checkpoint_check import check_all
    from ematix_flow.streaming.admin.inspection import inspect_checkpoint
    from ematix_flow.streaming.admin.status import stream_status

    spec = chosen_stream(stream, module, config)
    with closing(choice.for_reading()) as run_log:
        status = stream_status(run_log, spec.name)
    findings = check_all(inspect_checkpoint(spec, holder=status.worker if status.is_running else None))
    if output.json:
        output.document({"pipeline": spec.name, "findings": [item.to_dict() for item in findings]})
    else:
        print_findings(output, findings)
    return exit_codes.RUN_FAILED if is_damaged(findings) else exit_codes.OK


def _short(value: str) -> str:
    return value if len(value) <= 48 else f"{value[:45]}…"


def _run_checks(module: str | None, run_log: RunLogOptions) -> Iterator[HealthReport]:
    yield run_check("python", "program", _python)
    yield run_check("java", "program", _java)
    yield run_check("pyspark", "package", _pyspark)
    yield run_check("jars", "cache", _jars)
    yield run_check("run log", "history", lambda: _run_log(run_log))
    yield run_check("module", "pipelines", lambda: _module(module))
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
    from ematix_flow.engine.session.java import find_java, java_version

    program = find_java()
    return f"{java_version(program)} at {program}"


def _pyspark() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise RunFailed("pyspark is not installed", hint="pip install ematix-flow-spark") from None


def _jars() -> str:
    from ematix_flow.engine.session.jars import cache_folder, read_lock

    folder = cache_folder()
    wanted = {jar.file_name for jars in read_lock().values() for jar in jars}
    present = {name for name in wanted if (folder / name).is_file()}
    if present != wanted:
        raise CheckSkipped(
            f"{len(present)} of {len(wanted)} in {folder}; the others are fetched when they are first needed"
        )
    return f"{len(wanted)} in {folder}"


def _run_log(choice: RunLogOptions) -> str:
    from ematix_flow.run_log.urls import from_url

    if choice.off:
        raise CheckSkipped("switched off")
    from_url(choice.address).close()
    return choice.display()


def _module(requested: str | None) -> str:
    from ematix_flow.declare import registry

    if requested is None and modules.default_module() is None:
        raise CheckSkipped("no module named; pass --module to check one")
    loaded = modules.load_module(requested)
    count = len(registry.pipelines())
    return f"{loaded.name}: {count} {'pipeline' if count == 1 else 'pipelines'}, no circles"


def _row(report: HealthReport) -> tuple[str, ...]:
    detail, *_ = report.detail.splitlines() or [""]
    return report.name, report.kind, report.status, str(report.elapsed_ms), detail
