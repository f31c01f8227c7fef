"""Tests that `make test` leaves out to stay quick, because another one shows the same; CONTRACT_FULL=1 runs them all."""

from __future__ import annotations

import os

import pytest

IS_FULL = bool(os.environ.get("CONTRACT_FULL"))


def when_full(reason: str) -> pytest.MarkDecorator:
    """A test that waits for CONTRACT_FULL=1, and why."""
    return pytest.mark.skipif(not IS_FULL, reason=f"{reason}; CONTRACT_FULL=1 runs it")
