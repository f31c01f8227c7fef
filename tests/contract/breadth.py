"""What the suite leaves out by default, because twins share the code that is tested; CONTRACT_FULL=1 leaves out nothing.

MySQL 8 is MariaDB's twin, ORC and JSON lines are Parquet's and CSV's: what differs between twins (types, DDL, delivery,
the backend's own tests) runs on all of them. Delta is slow: of the strategies' long stories it runs the first ones.
"""

from __future__ import annotations

from tests.full import IS_FULL

_TWINS = {
    "mysql8": ("test_append", "test_truncate", "test_scd2", "test_scd2_events", "test_sources", "test_fan_out", "test_lanes", "test_errors", "test_windows", "test_merge", "test_quality", "test_paths"),
    "mariadb": ("test_lanes",),
    "files-csv": ("test_append", "test_windows"),
    "files-orc": ("test_append", "test_truncate", "test_fan_out", "test_errors", "test_windows"),
    "files-jsonl": ("test_append", "test_truncate", "test_fan_out", "test_errors", "test_windows"),
}  # fmt: skip
_STORIES = {
    ("delta", "test_append"): ("test_a_lookback_finds_rows_older_than_the_watermark",),
    ("delta", "test_ddl"): (
        "test_a_table_without_a_primary_key_takes_equal_rows",
        "test_on_drift_warn_loads_what_still_fits_and_says_so",
        "test_on_drift_warn_refuses_what_cannot_be_loaded",
    ),
    ("delta", "test_lanes"): (
        "test_rows_that_break_the_declaration_stop_a_lane_and_nothing_is_loaded",
        "test_few_rows_are_loaded_without_spark_and_many_are_not",
    ),
    ("delta", "test_merge"): (
        "test_compare_columns_decide_and_update_columns_limit",
        "test_keys_that_may_be_null_match_null",
        "test_duplicate_keys_in_a_batch_load_nothing",
    ),
    ("delta", "test_quality"): (
        "test_spark_finds_the_same_in_staged_files_where_duckdb_is_not_installed",
        "test_a_load_without_news_is_fresh_while_its_table_is",
    ),
    ("delta", "test_scd2"): (
        "test_hard_deletes_remove_every_version_of_the_key",
        "test_duplicate_keys_in_a_batch_load_nothing",
    ),
    ("delta", "test_scd2_events"): (
        "test_equal_timestamps_resolve_the_same_way_in_any_order",
        "test_columns_that_are_not_compared_are_refreshed_in_place",
        "test_a_ttl_ends_a_version_and_does_not_flap",
        "test_columns_that_are_added_or_widened_between_events_are_observed_as_well",
    ),
    ("delta", "test_truncate"): ("test_rows_that_break_the_declaration_leave_the_old_ones",),
    ("delta", "test_windows"): ("test_a_window_is_read_from_its_start_up_to_its_end",),
}


def is_left_out(system: str, module: str, test: str) -> bool:
    """Whether this test does not run on this system by default."""
    if IS_FULL:
        return False
    return module in _TWINS.get(system, ()) or test in _STORIES.get((system, module), ())
