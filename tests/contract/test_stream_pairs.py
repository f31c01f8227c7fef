"""Every source with every target: a stream dies before its publish, then behind it, and is started again each time.

How often a row is there then is what docs/guarantees.md promises of the pair, neither less nor more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ematix_flow import BigInt, Text, run_streaming_pipeline
from ematix_flow.backends.catalog import all_backends
from ematix_flow.contract.backend import Backend
from ematix_flow.contract.delivery import MEANINGS, short, stream_delivery
from ematix_flow.foundation import fault
from ematix_flow.foundation.errors import FlowError, Unsupported
from tests.contract.conftest import Systems
from tests.contract.loading import declare, unique
from tests.harness import HARNESSES
from tests.harness.feeds import BROKERS, FEEDS, Broker, Feed

pytestmark = pytest.mark.embedded("a stream's driver is its own process")

TIMES = {"once": 1, "exactly": 1, "at least": 2}
BY_DEFAULT = (("files", "sqlite"), ("kafka", "kafka"), ("files", "rabbitmq"))
"""One for each word; the other pairs share the code of their source, and that of their target."""
BACKENDS = {backend.name: backend for backend in all_backends()}
SOURCES = [backend for backend in BACKENDS.values() if backend.stream_source is not None]
TARGETS = [backend for backend in BACKENDS.values() if backend.batch_sink or backend.broker_sink]
TABLES = {entry.backend: name for name, entry in reversed(HARNESSES.items())}
"""The first harness of each backend."""
DOCUMENTS = [{"id": number, "name": f"n{number}"} for number in range(20)]


def pairs(chosen: Callable[[Backend, Backend], bool]) -> list[Any]:
    """Of sources and targets; the promise stands in the test's name."""
    return [_param(source, target) for source in SOURCES for target in TARGETS if chosen(source, target)]


def _param(source: Backend, target: Backend) -> Any:
    pair, word = (source.name, target.name), short(stream_delivery(source, target))
    marks = () if pair in BY_DEFAULT else pytest.mark.full("another pair with the same promise")
    return pytest.param(*pair, word, id=f"{source.name}-{target.name}-{word}", marks=marks)


class Pair:
    """A stream from one system to another."""

    def __init__(self, source: str, target: str, request: pytest.FixtureRequest, folder: Path) -> None:
        self._name, self._folder, self._request = unique("stream"), folder, request
        self.feed = self._opened(source)
        self._broker = self._opened(target) if target in BROKERS else None
        self._target = target

    def _opened(self, name: str) -> Feed:
        own = self._folder / unique(name)  # streams of Kinesis are called as their folders
        own.mkdir()
        return FEEDS[name](self._request, own)

    def drain(self, **options: Any) -> None:
        """Read what is there."""
        run_streaming_pipeline(
            name=self._name, source=self.feed.connection, source_query=self.feed.query, once=True,
            checkpoint=str(self._folder / "checkpoint"), transform_sql="SELECT id, name FROM source", **self._into(),
            **options,
        )  # fmt: skip

    def _into(self) -> dict[str, Any]:
        if isinstance(self._broker, Broker):
            return self._broker.target
        return {"target": self._table, "target_connection": self._system.connection, "mode": "append"}

    def into_table(self, systems: Systems) -> None:
        """Where the target has tables: one without a key, in which a row may be twice."""
        self._system, self._table = systems(TABLES[self._target]), declare({"id": BigInt, "name": Text | None})

    def found(self) -> Counter[int]:
        """How often each row is there, by the target's own client."""
        if isinstance(self._broker, Broker):
            return Counter(int(one["id"]) for one in self._broker.received(len(DOCUMENTS)))
        return Counter(int(row["id"]) for row in self._system.rows(self._table.spec()))


@pytest.fixture
def pair(source: str, target: str, request: pytest.FixtureRequest, tmp_path: Path, systems: Systems) -> Pair:
    made = Pair(source, target, request, tmp_path)
    if target not in BROKERS:
        made.into_table(systems)
    return made


def dying(at: str) -> Callable[..., None]:
    """In place of the kill that tests/crash arms here: the process lives on, and what it leaves is the same."""

    def point(name: str, **_: Any) -> None:
        if name == at:
            raise RuntimeError(f"it died at {at}")

    return point


def three_tries(pair: Pair, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Counter[int]:
    """What is there when the first try had done nothing yet, and the third had to find out what the second did."""
    pair.feed.send(DOCUMENTS)
    for point in ("before_publish", "after_publish"):
        with monkeypatch.context() as patch:
            patch.setattr(fault, "point", dying(point))
            with pytest.raises(FlowError, match=f"it died at {point}"):
                pair.drain(**options)
    pair.drain(**options)
    return pair.found()


@pytest.mark.proves("{source} → {target}: {word}")
@pytest.mark.parametrize(("source", "target", "word"), pairs(lambda *_: True))
def test_a_pair_does_what_its_word_says(pair: Pair, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"delivery": "exactly_once"} if word == "exactly" else {}
    assert three_tries(pair, monkeypatch, **asked) == Counter({one["id"]: TIMES[word] for one in DOCUMENTS})


def is_exact(source: Backend, target: Backend) -> bool:
    return short(stream_delivery(source, target)) == "exactly"


@pytest.mark.full
@pytest.mark.parametrize(("source", "target", "word"), pairs(is_exact))
def test_exactly_once_is_at_least_once_unless_it_is_asked_for(
    pair: Pair, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert three_tries(pair, monkeypatch) == Counter({one["id"]: TIMES["at least"] for one in DOCUMENTS})


@pytest.mark.parametrize(
    ("source", "target", "word"),
    pairs(lambda source, target: target.batch_sink is None and not is_exact(source, target)),
)
def test_exactly_once_is_refused_where_it_is_not_promised(pair: Pair, word: str) -> None:
    with pytest.raises(Unsupported, match="exactly_once"):
        pair.drain(delivery="exactly_once")


def test_every_source_can_be_filled_and_every_target_read() -> None:
    assert _names(SOURCES) == set(FEEDS)
    assert _names(TARGETS) == {*TABLES, *BROKERS}
    assert set(MEANINGS) == set(TIMES)


def _names(backends: Iterable[Backend]) -> set[str]:
    return {backend.name for backend in backends}
