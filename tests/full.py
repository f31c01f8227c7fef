"""Tests that `make test` leaves out to stay quick, because another one shows the same; CONTRACT_FULL=1 runs them all."""

from __future__ import annotations

import os

import pytest

IS_FULL = bool(os.environ.get("CONTRACT_FULL"))


def when_full(reason: str) -> pytest.MarkDecorator:
    """A test that waits for CONTRACT_FULL=1, and why."""
    return pytest.mark.skipif(not IS_FULL, reason=f"{reason}; CONTRACT_FULL=1 runs it")


LONG = (
    "e2e/test_starter_project.py::test_the_project_does_what_its_readme_says",
    "e2e/test_sessions.py::",
    "e2e/test_engine.py::test_something_else_on_the_port_of_an_engine_is_not_taken_for_it",
    "e2e/test_engine.py::test_an_engine_that_dies_in_the_middle",
    "e2e/test_engine.py::test_local_means_that_no_engine_is_joined",
    "e2e/test_backfill.py::test_an_interrupt_leaves_whole_windows_and_a_command_to_go_on_with[2-15]",
    "cluster/test_standalone.py::test_the_batch_contract_holds_on_the_cluster_in_both_lanes",
    "scale/test_five_million.py::test_parquet_to_postgres",
    "crash/test_kill.py::test_a_run_killed_at_any_point_can_simply_be_run_again[postgres-before_publish]",
    "crash/test_kill.py::test_a_run_killed_at_any_point_can_simply_be_run_again[duckdb-after_publish]",
    "executors/test_spark_submit.py::test_rows_go_from_sqlite_to_delta_with_the_jars_that_come_along",
    "contract/test_append.py::test_a_row_that_arrives_late_at_the_watermark_is_loaded_once[delta",
    "contract/test_ddl.py::test_a_wider_type_is_taken_without_losing_a_value[delta]",
    "contract/test_errors.py::test_a_row_that_breaks_the_declaration_loads_nothing[mariadb]",
    "contract/test_lake_backends.py::test_observations_follow_what_is_published",
    "contract/test_lake_backends.py::test_versions_close_open_refresh_and_expire_in_one_commit",
    "contract/test_lake_layouts.py::test_a_wider_type_is_read_before_and_after_the_load_that_brings_it[orc",
    "contract/test_lake_layouts.py::test_a_wider_type_is_read_before_and_after_the_load_that_brings_it[json_lines",
    "contract/test_lanes.py::test_every_lane_gives_the_same_table[delta-merge]",
    "contract/test_lanes.py::test_every_lane_gives_the_same_table[delta-truncate]",
    "contract/test_merge.py::test_soft_deletes_mark_and_come_back[delta]",
    "contract/test_merge.py::test_the_brake_stops_a_load_that_would_delete_too_much[delta]",
    "contract/test_scd2.py::test_a_key_that_is_gone_is_closed_and_comes_back_as_a_new_version[delta]",
    "contract/test_scd2.py::test_a_version_that_outlives_its_ttl_is_closed_and_does_not_flap[delta]",
    "contract/test_scd2_events.py::test_order_repetition_and_batching_do_not_matter[delta",
)
"""Tests of ten seconds and more, each with a shorter one that shows the same on another system or by other words."""


def waits(nodeid: str) -> bool:
    """Whether a test is left out by default because it is long."""
    return not IS_FULL and nodeid.removeprefix("tests/").startswith(LONG)
