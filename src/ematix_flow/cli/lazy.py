"""Commands that are imported when they are called, and the output options that every command takes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.names import did_you_mean, nearest_name


@dataclass(frozen=True)
class LazyCommand:
    """The module and attribute of a command, and its line in the help."""

    module: str
    summary: str
    attribute: str = "command"


class FlowCommand(click.Command):
    """A command that accepts the output options in any position."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(output_options())


class FlowGroup(click.Group):
    """A group whose commands are imported when they are called."""

    command_class = FlowCommand

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})
        self.params.extend(output_options())

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command; None for an unknown name."""
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self.lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but with our error message for an unknown name."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-") and not ctx.resilient_parsing:
            near = nearest_name(name, self.lazy)
            hint = did_you_mean(name, self.lazy) if near else f"see {ctx.command_path} --help"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def output_options() -> list[click.Option]:
    """Return `--json` and the other output options, as new objects for each command."""
    return [
        _option(["--json", "json"], "write one JSON document to stdout, errors included", _set_json, is_flag=True),
        _option(
            ["--format"],
            "the output format; json is the same as --json",
            _set_format,
            type=click.Choice(["text", "json"]),
        ),
        _option(["-v", "--verbose"], "show tracebacks, log lines and details", _set_verbose, is_flag=True),
        _option(["--no-color"], "no colours (as NO_COLOR=1)", _set_no_color, is_flag=True),
        _option(["--no-progress"], "no progress lines", _set_no_progress, is_flag=True),
    ]


def _option(names: list[str], text: str, callback: Any, **more: Any) -> click.Option:
    return click.Option(names, help=text, callback=callback, expose_value=False, is_eager=True, **more)


def _set_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).json = True


def _set_format(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Output).json = value == "json"


def _set_verbose(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).be_verbose()


def _set_no_color(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).colored = False
        ctx.color = False


def _set_no_progress(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Output).progress = False
