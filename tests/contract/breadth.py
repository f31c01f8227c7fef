"""What the suite leaves out by default, because twins share the code that is tested; CONTRACT_FULL=1 leaves out nothing.

MySQL 8 is MariaDB's twin, ORC and JSON lines are Parquet's and CSV's: what differs between twins (types, DDL, delivery,
the backend's own tests) runs on all of them. Delta is slow: of the strategies' long stories it runs the first ones.
"""

from __future__ import annotations

from tests.full import IS_FULL

_TWINS = {
    "mysql8": ("test_append", "test_truncate", "test_scd2", "test_scd2_events", "test_sources", "test_fan_out", "test_lanes", "test_errors", "test_windows"),
    "mariadb": ("test_lanes",),
    "files-csv": ("test_append", "test_windows"),
    "files-orc": ("test_append", "test_truncate", "test_fan_out", "test_errors", "test_windows"),
    "files-jsonl": ("test_append", "test_truncate", "test_fan_out", "test_errors", "test_windows"),
}  # fmt: skip
_STORIES = {
    ("delta", "test_scd2_events"): (
        "test_equal_timestamps_resolve_the_same_way_in_any_order",
        "test_columns_that_are_not_compared_are_refreshed_in_place",
        "test_a_ttl_ends_a_version_and_does_not_flap",
    ),
    ("delta", "test_lanes"): ("test_rows_that_break_the_declaration_stop_the_arrow_lane_and_nothing_is_loaded",),
    ("delta", "test_append"): ("test_a_lookback_finds_rows_older_than_the_watermark",),
}


def is_left_out(system: str, module: str, test: str) -> bool:
    """Whether this test does not run on this system by default."""
    if IS_FULL:
        return False
    return module in _TWINS.get(system, ()) or test in _STORIES.get((system, module), ())
