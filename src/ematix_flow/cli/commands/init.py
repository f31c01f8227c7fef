"""`flow init`: a project that runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.output import Output

_CONTENTS = (
    ("pipelines.py", "three tables, three pipelines (SQLite and CSV in, DuckDB and Delta out)"),
    (".ematix-flow.toml", "connections"),
    ("data/", "a small shop to play with"),
    ("README.md", "what to try"),
)


@click.command("init", cls=FlowCommand)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="overwrite files that are already there")
@click.pass_obj
def command(output: Output, path: Path, force: bool) -> None:
    """Write a project that runs: tables, pipelines, connections and a small shop to play with."""
    from ematix_flow.cli.starter import scaffold_project

    written = scaffold_project(path, force=force)
    here = "" if path.resolve() == Path.cwd() else f"cd {shlex.quote(str(path))} && "
    following = f"{here}flow run --module pipelines --all"
    if output.json:
        output.document({"path": str(path), "files": [str(one) for one in written], "next": following})
        return
    output.table([(f"  {path / name}{'/' if name.endswith('/') else ''}", text) for name, text in _CONTENTS])
    output.talk(f"next: {following}")
