"""The command `flow init`: writes a starter project."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ematix_flow.cli.lazy import FlowCommand
from ematix_flow.cli.render.output import Output

_CONTENTS = (
    ("pipelines.py", "three tables, three pipelines (SQLite and CSV in, DuckDB and Delta out)"),
    (".ematix-flow.toml", "connections"),
    ("data/", "a small shop to play with"),
    ("README.md", "what to try"),
)
_DEPLOYMENT = (
    ("Dockerfile", "an image with Java, Spark and the pipelines"),
    ("flow.service", "a systemd unit that runs the scheduler"),
    (".github/workflows/flow.yml", "checks at every push, and a load every hour"),
)


@click.command("init", cls=FlowCommand)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="overwrite files that are already there")
@click.option("--deploy", is_flag=True, help="add a Dockerfile, a systemd unit and a GitHub workflow")
@click.pass_obj
def command(output: Output, path: Path, force: bool, deploy: bool) -> None:
    """Write a project that runs: tables, pipelines, connections and small sample data."""
    from ematix_flow.cli.starter import scaffold_project

    written = scaffold_project(path, force=force, deploy=deploy)
    here = "" if path.resolve() == Path.cwd() else f"cd {shlex.quote(str(path))} && "
    following = f"{here}flow run --module pipelines --all"
    if output.json:
        output.document({"path": str(path), "files": [str(one) for one in written], "next": following})
        return
    listed = (*_CONTENTS, *(_DEPLOYMENT if deploy else ()))
    output.table([(f"  {path / name}{'/' if name.endswith('/') else ''}", text) for name, text in listed])
    output.info(f"next: {following}")
