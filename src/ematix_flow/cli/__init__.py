"""The `flow` command: its subcommands, their options and their output."""

from ematix_flow.cli.main import main

__all__ = ["main"]
