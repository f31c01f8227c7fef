"""Promises a system does not keep yet: each a strict xfail, so that the day it works the suite says so."""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}
