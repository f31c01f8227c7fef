"""What the suite leaves out on the native engine (CONTRACT_ENGINE=sail), with the reason of each gap.

A system that is left out is refused before anything runs, which tests/e2e/test_sail.py shows. A gap is a strict xfail.
"""

from __future__ import annotations

import os

ENGINE_VARIABLE = "CONTRACT_ENGINE"
_SYSTEMS = {
    "files-csv": "refused: the engine takes an empty text in CSV for NULL",
    "files-orc": "refused: the engine has no ORC",
    **dict.fromkeys(
        ("delta-s3", "files-s3-parquet", "files-s3-csv", "files-s3-orc", "files-s3-jsonl"),
        "refused: the engine has no way into a bucket here",
    ),
}
_CSV = "refused: the engine takes an empty text in CSV for NULL"
_ORC = "refused: the engine has no ORC"
_FOLDERS = "refused: the engine gives NULL and an empty text one folder"
_WIDER = "refused: a Delta column that took a wider type can no longer be committed to without Spark"
_JSON_NUMBERS = "refused: the engine has no NaN and no infinity in JSON"
_WIDENING = "test_a_wider_type_is_read_before_and_after_the_load_that_brings_it"
_EXPECTED = "test_files_are_what_their_own_readers_expect"
_GAPS: dict[str, str] = {
    "test_a_table_reports_the_types_it_was_declared_with_and_grows[delta]": _WIDER,
    "test_a_wider_type_is_taken_without_losing_a_value[delta]": _WIDER,
    "test_columns_that_are_added_or_widened_between_events_are_observed_as_well[delta]": _WIDER,
    "test_people_may_ask_and_change_delta_tables_by_name": "refused: statements on Delta tables, other than queries",
    "test_every_value_of_a_dataframe_arrives_as_it_is[files-jsonl]": _JSON_NUMBERS,
    "test_every_value_of_a_source_arrives_as_it_is[files-jsonl]": "JSON with NaN outside of quotes is not read",
    "test_every_value_of_a_source_arrives_as_it_is[sqlite]": "a text with an exponent is not read as a decimal",
    "test_a_nullable_column_that_is_new_is_added[files-jsonl]": "NULL is left out of JSON objects",
    f"{_EXPECTED}[csv]": _CSV,
    "test_csv_options_partitions_and_new_columns_read_back": _CSV,
    "test_sql_over_folders_and_files_keeps_what_was_written": _CSV,
    "test_csv_read_options_are_followed": _CSV,
    "test_numbers_of_a_csv_file_are_never_bent": _CSV,
    "test_a_value_that_a_sample_did_not_foretell_is_refused": _CSV,
    f"{_WIDENING}[csv-None]": _CSV,
    f"{_WIDENING}[csv-partition_by1]": _CSV,
    f"{_EXPECTED}[orc]": _ORC,
    "test_orc_shows_others_a_timestamp": _ORC,
    "test_orc_outside_of_utc_is_refused": _ORC,
    f"{_WIDENING}[orc-None]": _ORC,
    f"{_WIDENING}[orc-partition_by1]": _ORC,
    "test_parquet_partitions_and_compression_are_as_asked": _FOLDERS,
    f"{_WIDENING}[parquet-partition_by1]": _FOLDERS,
    f"{_WIDENING}[json_lines-partition_by1]": _FOLDERS,
}


def is_native() -> bool:
    """Whether the suite runs on the native engine."""
    return os.environ.get(ENGINE_VARIABLE) == "sail"


def is_refused(system: str) -> bool:
    """Whether the engine refuses this system."""
    return is_native() and system in _SYSTEMS


def gap(test: str, case: str) -> str | None:
    """Why this test, or this case of it, fails on the native engine; None when it must pass."""
    return (_GAPS.get(case) or _GAPS.get(test)) if is_native() else None
