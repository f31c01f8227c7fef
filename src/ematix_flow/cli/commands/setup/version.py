"""The command `flow version`: the versions of this program, Python and pyspark."""

from __future__ import annotations

import platform

import click

from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.packages import __version__


@click.command("version", cls=FlowCommand)
@click.pass_obj
def command(output: Output) -> None:
    """Show the versions of this program, Python and pyspark."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        spark: str | None = installed("pyspark")
    except PackageNotFoundError:
        spark = None
    python = platform.python_version()
    text = f"flow {__version__} (Python {python}, pyspark {spark or 'not installed'})"
    output.result({"version": __version__, "python": python, "pyspark": spark}, text)
