"""Every test starts and ends with nothing declared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ematix_flow.declare import registry


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    registry.clear()
    yield
    registry.clear()
