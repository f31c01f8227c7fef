"""The command `flow connections`: lists, checks and sets connections."""

from __future__ import annotations

import click

from ematix_flow.cli.flags import module_option
from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.render.output import Output

_NONE = "no connections are configured; add one: flow connections set warehouse url=postgres://…"

group = FlowGroup("connections", default="list", help="List, check and set connections.")


@group.command("list", short_help="list every connection, its address and where it is defined")
@module_option
@click.pass_obj
def list_command(output: Output, module: str | None) -> None:
    """List every connection, its address without secrets, and where it is defined."""
    modules.load_module_if_any(module, output)
    from ematix_flow.config.resolve import list_entries

    entries = list_entries()
    document = [
        {"name": one.name, "kind": one.kind, "address": one.label, "origin": one.origin, "problem": one.problem}
        for one in entries
    ]
    rows = [(one.name, one.label, one.origin, f"✗ {one.problem}" if one.problem else "") for one in entries]
    output.listing(document, rows, empty=_NONE)


@group.command("check", short_help="check whether connections answer")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@module_option
@click.pass_obj
def check_command(output: Output, names: tuple[str, ...], module: str | None) -> int:
    """Check whether connections answer; without a name, check all of them."""
    modules.load_module_if_any(module, output)
    from ematix_flow.config.resolve import list_entries
    from ematix_flow.engine.connections.health import check_connection, first_failure_code

    reports = []
    for name in names or [one.name for one in list_entries()]:
        report = check_connection(name)
        reports.append(report)
        if output.json:
            continue
        if report.is_fail:
            output.info(f"{output.paint('✗', 'red', err=True)} {name}: {report.detail}")
            output.info(f"  {report.hint}" if report.hint else f"next: flow connections list   ({report.kind})")
        else:
            output.data(f"{name}: {report.status} ({report.detail}, {report.elapsed_ms} ms)")
    if output.json:
        plain = [report.to_dict() for report in reports]
        output.document(plain[0] if len(names) == 1 else plain)
    elif not reports:
        output.info(_NONE)
    return first_failure_code(reports)


@group.command("set", short_help="write a connection into your own configuration")
@click.argument("words", nargs=-1, required=True, metavar="NAME=URL | NAME FIELD=VALUE...")
@click.pass_obj
def set_command(output: Output, words: tuple[str, ...]) -> None:
    """Write a connection into ~/.ematix-flow/connections.toml, for all projects of this user.

    \b
    flow connections set warehouse url='postgres://ana:${PGPASSWORD}@db/shop'
    flow connections set lake kind=delta_local path=data/lake
    """
    from ematix_flow.config.connection_writer import parse_assignment, set_connection
    from ematix_flow.foundation.redact import remember_url_secrets

    name, value = parse_assignment(words)
    path = set_connection(name, value)
    url = value if isinstance(value, str) else str(value.get("url", value.get("dsn", "")))
    if remember_url_secrets(url):
        output.warn("the password now stands in that file as it is; ${VARIABLE} in its place keeps it out")
    output.result({"name": name, "path": str(path)}, str(path))
    output.info(f"next: flow connections check {name}")
