"""No sample of the product's documents is forgotten: each is run by a test that is named here, or has a reason not to be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e import documents, names
from tests.e2e.documents import Sample
from tests.e2e.words import worded

DOCUMENT, FIRST = documents.NEWER, documents.FIRST

RUN_BY = {
    "Start:sh": "test_spec_orchestration.py::test_run_due_as_printed_fires_a_slot_once",
    "Connections/Resolution chain:sh": "test_spec_commands.py::test_the_printed_commands_list_and_check_a_connection",
    "Connections/Declaring connections/TOML file:toml": "test_spec_streams.py::test_a_stream_finds_the_connections_of_the_printed_file",
    "Pipelines:sh": "test_spec_commands.py::test_the_printed_commands_of_a_pipeline_run_it",
    "Scheduling/Cron (schedule= on the decorator):sh": "test_spec_orchestration.py::test_run_due_as_printed_fires_a_slot_once",
    "Scheduling/One-shot:sh": "test_spec_commands.py::test_the_printed_commands_of_a_pipeline_run_it",
    "Scheduling/Run history/RunLog backends:sh":
        "test_spec_orchestration.py::test_run_due_with_the_run_log_of_the_sample_keeps_its_history_there",
    names.FILE: "test_spec_streams.py::test_the_printed_file_is_run_by_python",
    names.FILE_BY_COMMAND: "test_spec_streams.py::test_the_printed_command_runs_a_stream",
    names.TYPED_BY_COMMAND: "test_spec_streams.py::test_the_printed_command_runs_a_stream",
    names.PIVOT_TABLE: "test_spec_archives.py::test_many_rows_become_one_with_json",
    "Configuration reference/Connection introspection:sh":
        "test_spec_commands.py::test_connections_are_set_listed_and_checked_as_printed",
    names.SUMMARY: "test_spec_commands.py::test_the_summary_of_commands_runs",
}  # fmt: skip
"""Blocks that are no Python, and who runs them."""
NOT_RUN = {
    "Start:text": "a drawing",
    "CLI:text (2)": "the columns of a table, as they are printed",
    "Install:sh": "pip install of the original's package",
    "Benchmarks and comparisons/How the speedups land:rust": "the original's own code",
    "Benchmarks and comparisons/How the speedups land:bash": "cargo: the original's own build",
    "Development:sh": "cargo and maturin: the original's own build",
}
REFUSED = {names.WINDOWS, names.SESSIONS, names.JOINS, names.CHANGES, names.STATE}
"""Windows, sessions, joins and change data are chapters of another issue: declared, and refused with a sentence."""

FIRST_LINES = {
    "flow run-due --module bike_flows": "the other document prints the same",
    "flow run --module bike_flows renew_members": "test_spec_first_samples.py",
    "flow preview --module bike_flows renew_members": "test_spec_first_samples.py",
    "flow validate --module bike_flows renew_members": "test_spec_first_samples.py",
    "flow consume --module bike_flows rides_to_depot --metrics-port 9464": "the other document prints the same",
    "flow consume-list --module bike_flows": "the other document prints the same",
    "cargo": "the original's own build; the words behind it are those of the other document",
    "pip": "the original's own package",
}
_CODE = re.compile(r"^(?:from [a-z_.]+ import |import \w+|@ematix\.\w+(?:\(.*)?$|run_\w+\(|flow [a-z-]+ --module|cargo |pip install [\w\"\[\]-]+(?: #.*)?$)")  # fmt: skip


def test_every_block_of_the_document_is_run_or_has_a_reason_not_to_be() -> None:
    found, run = set(documents.fenced(DOCUMENT)), names.BATCH | names.STREAMS | set(RUN_BY)
    assert (found - run - set(NOT_RUN), run - found) == (set(), set())
    assert REFUSED < names.STREAMS


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_the_tests_that_are_named_are_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"\ndef {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8")


def test_every_name_of_a_sample_is_used_by_a_test() -> None:
    told = {
        key: value
        for key, value in vars(names).items()
        if isinstance(value, str) and value in names.STREAMS | names.BATCH | set(names.EARLY)
    }
    texts = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_spec_*.py") if file != Path(__file__))  # fmt: skip
    assert [key for key in told if len(re.findall(rf"\b{key}\b", texts)) < 2] == []  # imported, and run


def test_every_line_of_code_in_the_first_document_belongs_to_a_sample() -> None:
    taken = {number for sample in map(documents.early, names.EARLY) for number in _lines(sample)}
    lines = documents.text_of(FIRST).splitlines()
    left = [line for number, line in enumerate(lines, start=1) if _CODE.match(line) and number not in taken]
    assert [line for line in left if not line.startswith(tuple(map(worded, FIRST_LINES)))] == []


def _lines(sample: Sample) -> range:
    return range(sample.line, sample.line + sample.text.count("\n"))
