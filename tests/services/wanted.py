"""What a machine lacks skips a test, except where everything is required (REQUIRE_SERVICES=1, as `make test` sets it).

Servers that take minutes to build are never required: `make servers` builds them, once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.services.server import ServerNotBuilt, ServiceMissing

_T = TypeVar("_T")


def or_skip(start: Callable[[], _T]) -> _T:
    """What `start` gives."""
    try:
        return start()
    except ServiceMissing as missing:
        if os.environ.get("REQUIRE_SERVICES") == "1" and not isinstance(missing, ServerNotBuilt):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
