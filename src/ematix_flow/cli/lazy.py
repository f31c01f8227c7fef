"""Commands that are imported when they are called, and the output options that every command takes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.names import did_you_mean, nearest_name

_HOME = "ematix_flow.cli.commands"


@dataclass(frozen=True)
class LazyCommand:
    """The place of a command below `cli.commands`, as `module` or `module:attribute`, and its line in the help."""

    place: str
    summary: str

    def load(self) -> click.Command:
        """Import the module and return the command."""
        module, _, attribute = self.place.partition(":")
        command: click.Command = getattr(importlib.import_module(f"{_HOME}.{module}"), attribute or "command")
        return command


class FlowCommand(click.Command):
    """A command that accepts the output options in any position."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(output_options())


class FlowGroup(click.Group):
    """A group of its own commands, and of lazy ones, which are imported when they are called.

    Without a command it runs its `default`.
    """

    command_class = FlowCommand

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, default: str | None = None,
                 **kwargs: Any) -> None:  # fmt: skip
        super().__init__(*args, **{"invoke_without_command": default is not None, **kwargs})
        self.lazy = dict(lazy or {})
        self.default = default
        self.params.extend(output_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command, or the default."""
        result = super().invoke(ctx)
        command = self.get_command(ctx, self.default) if self.default and ctx.invoked_subcommand is None else None
        return result if command is None else ctx.invoke(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order of the help."""
        return [*self.commands, *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported where it is lazy; None for an unknown name."""
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, without importing any."""
        own = [(name, command.short_help or "") for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(own + [(name, entry.summary) for name, entry in self.lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but with our error message for an unknown name."""
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            hint = did_you_mean(name, known) if nearest_name(name, known) else f"see {ctx.command_path} --help"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def output_options() -> list[click.Option]:
    """Return `--json` and the other output options, as new objects for each command."""
    formats = click.Choice(["text", "json"])
    return [
        _option(["--json", "json"], "write one JSON document to stdout, errors included", is_flag=True),
        _option(["--format"], "the output format; json is the same as --json", type=formats),
        _option(["-v", "--verbose"], "show tracebacks, log lines and details", is_flag=True),
        _option(["--no-color"], "no colours (as NO_COLOR=1)", is_flag=True),
        _option(["--no-progress"], "no progress lines", is_flag=True),
    ]


def _option(names: list[str], text: str, **more: Any) -> click.Option:
    return click.Option(names, help=text, callback=_set_output, expose_value=False, is_eager=True, **more)


def _set_output(ctx: click.Context, option: click.Parameter, value: bool | str | None) -> None:
    output = ctx.ensure_object(Output)
    match option.name if value else None:
        case "json":
            output.json = True
        case "format":
            output.json = value == "json"
        case "verbose":
            output.be_verbose()
        case "no_color":
            output.colored = ctx.color = False
        case "no_progress":
            output.progress = False
