"""What the suite leaves out by default, because twins share the code that is tested; CONTRACT_FULL=1 leaves out nothing.

MySQL 8 is MariaDB's twin, which shares the long stories of databases with PostgreSQL; ORC and JSON lines are Parquet's and
CSV's twins, and have tests of their own. Delta is slow: of the strategies it runs the first stories.
"""

from __future__ import annotations

from tests.full import IS_FULL

_TWINS = {
    "mariadb": ("test_append", "test_truncate", "test_errors", "test_lanes", "test_scd2", "test_scd2_events", "test_sources", "test_fan_out", "test_windows", "test_quality", "test_paths"),
    "files-csv": ("test_append", "test_windows"),
}  # fmt: skip
# Lakes on S3 share all but where things lie, twins all but their types: these modules show what differs.
_ONLY = {
    "mysql8": (),
    "files-orc": (),
    "files-jsonl": (),
    "delta": ("test_append", "test_merge", "test_scd2", "test_types", "test_delivery"),
    "delta-s3": ("test_delivery",),
    "files-s3-parquet": ("test_delivery",),
    "files-s3-csv": (),
    "files-s3-orc": (),
    "files-s3-jsonl": (),
}
# Streams write by the path of batch loads: a database and a lake each stand for their families.
_OF_STREAMS = {
    "test_every_message_is_a_row_once_and_the_next_start_goes_on": ("postgres", "delta"),
    "test_the_last_message_about_a_key_counts": ("postgres",),
    "test_a_table_that_nobody_declared_follows_the_messages": ("files-parquet", "duckdb"),
    "test_versions_are_kept_of_what_messages_tell": ("sqlite",),
    "test_tools_see_what_was_read": ("sqlite",),
    "test_a_generation_that_was_left_behind_writes_nothing_any_more": ("sqlite",),
    "test_a_checkpoint_that_is_older_than_its_target_is_refused_and_no_row_is_lost_in_silence": ("sqlite",),
}
# Databases apply changes by the same statements; what differs between them shows in the first story.
_OF_CHANGES = {
    "test_rows_follow_their_source_whatever_is_told_again_or_late": ("postgres",),
    "test_a_key_may_have_several_columns_and_move": ("sqlite",),
    "test_the_first_rows_make_a_table_and_later_ones_keep_to_it": ("sqlite",),
    "test_an_envelope_may_be_of_any_shape": ("sqlite",),
}
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
    if module == "test_stream_targets" and system not in _OF_STREAMS.get(test, ()):
        return True
    if module == "test_changes":
        return system not in _OF_CHANGES.get(test, ())
    if system in _ONLY:
        return module not in _ONLY[system]
    return module in _TWINS.get(system, ()) or test in _STORIES.get((system, module), ())
