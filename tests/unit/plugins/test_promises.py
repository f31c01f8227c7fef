"""The table that `make test-full` ends with."""

from __future__ import annotations

import pytest
from tests.plugins.promises import BEYOND, all_promises, table


def test_a_promise_is_proven_by_tests_that_passed_and_by_no_other() -> None:
    promises = {"Loads": ["a: append", "a: merge", "b: append", "b: merge"], BEYOND: ["a sentence"]}
    seen = {"a: append": {"passed"}, "a: merge": {"passed", "failed"}, "b: append": {"passed", "skipped"}}
    assert list(table(promises, {**seen, "b: merge": {"skipped"}})) == [
        "Loads: 1 of 4 proven",
        "  a         ✓ append  ✗ merge",
        "  b         ◐ append  – merge",
        f"{BEYOND}: 0 of 1 proven",
        "  – a sentence",
        "✓ proven: 1, ◐ proven in part: 1, ✗ failed: 1, – not proven: 2",
    ]


def test_every_promise_of_a_load_and_of_a_pair_of_systems_is_listed() -> None:
    promises = all_promises()
    assert {"postgres: scd2", "delta: once", "files_s3: truncate"} <= set(promises["Loads"])
    assert "files: merge" not in promises["Loads"]
    assert {"kafka → kafka: exactly", "rabbitmq → postgres: once"} <= set(promises["Streams"])
    assert all(len(set(part)) == len(part) for part in promises.values())


def test_what_tests_claim_to_prove_is_promised(request: pytest.FixtureRequest) -> None:
    """Of the tests that were collected with this one."""
    promised = {promise for part in all_promises().values() for promise in part}
    claimed = {told for item in request.session.items for name, told in item.user_properties if name == "proves"}
    assert claimed <= promised
