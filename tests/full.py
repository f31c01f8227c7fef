"""Whether the tests show everything (`--full`, CONTRACT_FULL=1) or what fits into a short run.

Tests and cases that a short run leaves out carry the marker `full`; this flag is for tests that only do less of the same.
"""

from __future__ import annotations

import os

VARIABLE = "CONTRACT_FULL"
IS_FULL = bool(os.environ.get(VARIABLE))
