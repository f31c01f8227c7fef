"""The `flow` command."""

from ematix_flow.cli.main import main

__all__ = ["main"]
