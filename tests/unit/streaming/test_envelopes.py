"""Where the parts of a change are, and what its operations mean."""

from __future__ import annotations

import pytest

from ematix_flow import CDC
from ematix_flow.streaming.cdc.envelopes import envelope_of, value_at


def test_what_is_configured_overrides_the_defaults() -> None:
    usual = envelope_of(CDC())
    assert (usual.operation, usual.before, usual.after, usual.moment) == ("op", "before", "after", "source.ts_ms")
    said = envelope_of(CDC(ts_field="ts_ms", op_map={"t": "d"}))
    assert (said.moment, said.after, said.is_wrapped) == ("ts_ms", "after", True)
    assert said.words == {"c": "c", "u": "u", "d": "d", "r": "r", "t": "d"}


@pytest.mark.parametrize(
    ("word", "meant"), [("insert", "c"), ("update", "u"), ("delete", "d"), ("bootstrap-insert", "r")]
)
def test_maxwell_has_words_of_its_own(word: str, meant: str) -> None:
    assert envelope_of(CDC(envelope="maxwell")).words[word] == meant


def test_a_path_is_followed_object_by_object() -> None:
    assert value_at("event", "op") == "try_element_at(event, 'op')"
    inner = "from_json(try_element_at(event, 'source'), 'MAP<STRING, STRING>')"
    assert value_at("event", "source.ts_ms") == f"try_element_at({inner}, 'ts_ms')"
