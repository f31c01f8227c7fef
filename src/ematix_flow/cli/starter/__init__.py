"""The project that `flow init` writes."""

from ematix_flow.cli.starter.write import AlreadyThere, scaffold_project

__all__ = ["AlreadyThere", "scaffold_project"]
