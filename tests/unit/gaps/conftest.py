"""The project folder, the command line and the SQLite shop of the command line's own tests."""

from __future__ import annotations

from tests.unit.cli.conftest import declare, fill_shop, flow, project, shop

__all__ = ["declare", "fill_shop", "flow", "project", "shop"]
