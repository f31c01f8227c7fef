"""Tests that `make test` leaves out to stay quick, because another one shows the same; CONTRACT_FULL=1 runs them all."""

from __future__ import annotations

import os

import pytest

IS_FULL = bool(os.environ.get("CONTRACT_FULL"))


def when_full(reason: str) -> pytest.MarkDecorator:
    """A test that waits for CONTRACT_FULL=1, and why."""
    return pytest.mark.skipif(not IS_FULL, reason=f"{reason}; CONTRACT_FULL=1 runs it")


LONG = (
    "crash/test_kill.py::test_a_run_killed_at_any_point_can_simply_be_run_again[delta-after_publish]",
    "crash/test_kill_backfill.py::test_workers_and_their_parent_may_be_killed_in_the_middle_of_their_work",
    "e2e/test_stream_example.py::",
    "e2e/test_starter_project.py::",
    "contract/test_lanes.py::test_every_lane_gives_the_same_table[delta-scd2]",
    "contract/test_scd2_events.py::test_a_late_event_splits_the_interval_it_belongs_to[delta",
    "contract/test_lake_backends.py::test_a_merge_is_exact_about_nulls_and_touches_only_what_changes",
    "contract/test_lake_backends.py::test_the_brake_stops_a_merge_before_anything_is_deleted",
    "contract/test_errors.py::test_a_row_that_breaks_the_declaration_loads_nothing[delta]",
    "contract/test_errors.py::test_a_row_that_breaks_the_declaration_loads_nothing[files-csv]",
    "streams/test_kafka_backend.py::test_a_wrong_password",
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
    "contract/test_lake_layouts.py::test_a_wider_type_is_read_before_and_after_the_load_that_brings_it[csv",
    "contract/test_stream_sources.py::test_every_row_becomes_a_message[rabbitmq]",
    "contract/test_stream_sources.py::test_files_of_another_dialect_are_read_by_their_options",
    "contract/test_windows.py::test_a_window_is_merged_once_unless_it_is_asked_for_again[delta]",
    "contract/test_nested.py::test_a_document_that_says_the_same_is_unchanged[delta]",
    "contract/test_append.py::test_an_empty_source_loads_nothing_and_keeps_the_watermark[delta]",
    "contract/test_merge.py::test_hard_deletes_remove_what_the_source_lost[delta]",
    "cluster/test_standalone.py::test_a_worker_killed_in_the_middle_of_a_load_loses_and_doubles_nothing",
    "crash/test_kill.py::test_a_run_killed_at_any_point_can_simply_be_run_again[delta-mid_stage]",
    "e2e/test_engine.py::test_a_killed_engine_is_not_missed",
    "e2e/test_engine.py::test_an_engine_may_be_addressed_as_a_cluster_by_spark_connect",
    "e2e/test_run_costs.py::test_a_load_through_spark",
    "e2e/test_run_costs.py::test_every_target_of_a_fan_out",
    "contract/test_lake_backends.py::test_many_small_files_of_a_delta_table_become_few_and_no_row_changes",
    "contract/test_lake_backends.py::test_a_lake_that_lost_its_state_asks_its_tables[delta]",
    "contract/test_lake_backends.py::test_a_reader_of_delta_never_sees_half_a_load",
    "contract/test_stream_sources.py::test_every_row_becomes_a_message[kafka]",
    "contract/test_stream_sources.py::test_everything_arrives_once_and_the_next_start_goes_on[rabbitmq]",
    "contract/test_mysql_backend.py::test_a_rehearsal_is_rolled_back_although_it_needs_temporary_tables[mysql8]",
    "contract/test_lanes.py::test_every_lane_gives_the_same_table[delta-merge]",
    "contract/test_lanes.py::test_every_lane_gives_the_same_table[delta-truncate]",
    "contract/test_merge.py::test_soft_deletes_mark_and_come_back[delta]",
    "contract/test_merge.py::test_the_brake_stops_a_load_that_would_delete_too_much[delta]",
    "contract/test_scd2.py::test_a_key_that_is_gone_is_closed_and_comes_back_as_a_new_version[delta]",
    "contract/test_scd2.py::test_a_version_that_outlives_its_ttl_is_closed_and_does_not_flap[delta]",
    "contract/test_scd2_events.py::test_order_repetition_and_batching_do_not_matter[delta",
    "e2e/test_sail.py::test_the_first_promises_of_the_contract_hold_on_the_native_engine",
    "crash/test_kill.py::test_a_run_killed_at_any_point_can_simply_be_run_again[postgres-mid_stage]",
    "crash/test_kill_sail.py::",
    "unit/cli/test_cluster_command.py::test_doctor_says_which_engine_was_chosen_and_by_whom",
    "contract/test_scd2.py::test_a_change_closes_the_old_version_where_the_new_one_begins[delta]",
    "contract/test_lake_backends.py::test_every_delta_load_is_one_commit",
    "contract/test_lake_backends.py::test_a_table_reports_the_types_it_was_declared_with_and_grows[delta]",
    "contract/test_lake_backends.py::test_a_run_that_died_after_its_publish_is_finished_by_the_next[delta]",
    "contract/test_lake_files.py::test_people_may_ask_and_change_delta_tables_by_name",
    "contract/test_lake_layouts.py::test_a_wider_type_is_read_before_and_after_the_load_that_brings_it[parquet-partition_by1",
    "contract/test_merge.py::test_merge_counts_what_it_inserts_updates_and_leaves[delta]",
    "contract/test_types.py::test_every_value_equals_itself_when_it_comes_again[delta]",
    "contract/test_fan_out.py::test_the_source_is_read_once_for_all_targets",
    "contract/test_federation.py::test_conditions",
    "contract/test_stream_pairs.py::test_a_pair_does_what_its_word_says[files-",
    "contract/test_stream_pairs.py::test_exactly_once_is_at_least_once",
    "contract/test_stream_targets.py::test_a_table_that_nobody_declared",
    "e2e/test_spec_first_samples.py::test_a_source_in_another_database",
    "e2e/test_run_costs.py::",
    "e2e/test_backfill.py::test_windows_side_by_side_load_every_row_once",
    "streams/test_refused_rows.py::test_rows_that_break_a_constraint_are_set_aside_and_the_others_are_written[sqlite]",
    "streams/test_row_sources.py::test_a_delta_table_is_read",
    "streams/test_new_files.py::test_lines_that_cannot_be_read_are_set_aside_as_they_are[csv]",
    "executors/test_lambda.py::test_a_run_is_asked_to_end_before_lambda_ends_it",
)
"""Tests of ten seconds and more, each with a shorter one that shows the same on another system or by other words."""

QUICK = {
    "streams/test_kafka_backend.py": ("a_message_arrives", "topics_are_read", "a_wrong_password", "offsets_are_seen", "what_was_dropped", "a_broker_that_is_down", "a_topic_that_is_not"),
    "streams/test_kafka_sink.py": ("a_batch_that_is_sent_again", "a_producer_that_was", "what_cannot_be_sent"),
    "streams/test_runner.py": ("bad_records_are_set_aside", "targets_share", "a_second_runner", "too_many_bad", "a_broker_that_does_not_answer_is"),
    "streams/test_transform.py": ("rows_are_filtered", "sql_alone_adds_nothing", "what_is_wrong_with_the_sql", "rows_that_fail_are_set_aside"),
    "streams/test_udfs.py": ("a_function_of_rows", "the_printed", "an_exception_in_a_task", "a_call_that_does_not_fit"),
    "streams/test_udfs_in_batches.py": ("a_load_aggregates", "a_row_on_which", "keywords_that"),
    "streams/test_lookups.py": ("the_printed_sample", "a_lookup_is_read_again", "a_refresh_that_fails"),
    "streams/test_payloads.py": ("types_are_learned", "declared_columns_are_read", "bad_messages_say_why", "columns_grow"),
    "streams/test_written_payloads.py": ("avro_messages_become", "the_writers_schema_changes", "protobuf_messages_become"),
    "streams/test_encoding.py": ("json_keeps", "what_is_written_with_a_schema"),
    "streams/test_row_sources.py": ("new_files_are_read_once", "a_delta_table_is_read"),
    "streams/test_kinesis.py": ("records_arrive", "children_wait", "what_is_wrong", "a_notebook"),
    "streams/test_spool.py": ("everything_arrives", "killed_at_every_step", "a_drain", "a_broker_that_goes", "what_no_queue"),
    "streams/test_rabbitmq.py": ("everything_arrives", "a_wrong_password", "a_missing_queue", "the_manifest", "sent_rows_are"),
    "streams/test_operations.py": ("a_stream_that_was_drained", "the_commands_look"),
    "streams/test_rewinds.py": ("a_rewind_reads_again", "offsets_of_kafka"),
    "streams/test_checkups.py": ("a_half_written_commit", "a_lost_generation_is_found_again_in_a_lake[kept", "transactions"),
    "streams/test_replays.py": ("a_replay_takes",),
    "streams/test_queue_streams.py": ("only_queues",),
    "streams/test_dialects.py": ("what_would_mean", "a_wrong_name"),
    "streams/test_bad_batches.py": ("a_lease_that_is_lost",),
    "streams/test_bad_messages.py": ("a_message_that_is_too_large",),
    "streams/test_backlog.py": ("targets_whose_names",),
    "streams/test_figures.py": ("the_depth",),
    "streams/test_refused_rows.py": ("rows_that_break_a_constraint", "the_search", "of_two_rows", "a_batch_with"),
    "streams/test_new_files.py": ("a_column_that_comes_later", "lines_that_cannot"),
    "streams/test_queue_registries.py": (),
    "streams/test_stateful.py": ("a_window_comes_out", "sessions_go_on"),
    "streams/test_window_operators.py": ("every_aggregation_knows_every_type_in_any_batching[(4", "a_row_is_late", "a_column_that"),
    "streams/test_session_operators.py": ("a_session_is_cut", "a_gap"),
    "streams/test_join_operator.py": ("a_row_that_is_gone", "rows_are_forgotten", "keys_that_cannot", "a_row_without"),
    "streams/test_keepers.py": ("what_a_note", "a_wrong_password", "generations"),
    "e2e/test_spec_streams.py": ("the_printed_file", "the_printed_command", "sql_joins", "every_streaming_sample"),
    "e2e/test_spec_functions.py": (),
    "e2e/test_spec_stateful.py": ("events_are_counted", "change_data", "orders_meet"),
}  # fmt: skip
"""Of these files only tests whose names begin so run by default: streams take seconds each, and share most of their way."""


def waits(nodeid: str) -> bool:
    """Whether a test is left out by default because it is long."""
    if IS_FULL:
        return False
    name = nodeid.removeprefix("tests/")
    file, _, test = name.partition("::")
    if file in QUICK and not test.removeprefix("test_").startswith(QUICK[file]):
        return True
    return name.startswith(LONG)
