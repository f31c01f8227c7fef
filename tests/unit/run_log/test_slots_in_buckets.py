"""A process that dies while it takes a slot in a bucket: the slot is free, or its run is found and requested again."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from ematix_flow.run_log.blob.store import BlobRunLog
from ematix_flow.scheduler.due import Job
from ematix_flow.scheduler.queueing import DueQueue
from ematix_flow.storage.object_store import ConditionFailed, ListedObject, StoredObject

NOW = datetime(2026, 11, 16, 3, 0, 10, tzinfo=timezone.utc)
SLOT = "cron:2026-11-16T03:00:00Z"
HOURLY = Job("orders", schedule="0 * * * *")


class Died(BaseException):
    """The process is gone."""


class Shelf:
    """A bucket in memory, whose writes can end with the process."""

    label = "shelf"

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.writes_left: int | None = None
        self._one = threading.Lock()

    def get(self, key: str) -> StoredObject | None:
        found = self.objects.get(key)
        return StoredObject(found[0], str(found[1])) if found is not None else None

    def put(self, key: str, body: bytes, *, match: str | None = None) -> str:
        if self.writes_left == 0:
            raise Died
        if self.writes_left is not None:
            self.writes_left -= 1
        with self._one:
            known = self.get(key)
            if match is not None and match != (known.tag if known is not None else ""):
                raise ConditionFailed(key)
            number = int(known.tag) + 1 if known is not None else 1
            self.objects[key] = (body, number)
        return str(number)

    def listed(self, prefix: str, *, page: int = 1000) -> Iterator[ListedObject]:
        keys = sorted(key for key in self.objects if key.startswith(prefix))
        return (ListedObject(key, len(self.objects[key][0]), str(self.objects[key][1]), NOW) for key in keys)

    def children(self, prefix: str) -> tuple[list[str], list[ListedObject]]:
        found = list(self.listed(prefix))
        folders = {
            prefix + item.key[len(prefix) :].partition("/")[0] for item in found if "/" in item.key[len(prefix) :]
        }
        return sorted(folders), [item for item in found if "/" not in item.key[len(prefix) :]]

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def close(self) -> None:
        """Keep the objects for the next process."""


def _queue(shelf: Shelf) -> DueQueue:
    return DueQueue([HOURLY], BlobRunLog(shelf), 60)


def _die_in_a_tick(shelf: Shelf, *, writes: int) -> bool:
    """Run a tick in a process that dies after this many writes; return False if it needed no more."""
    queue = _queue(shelf)
    shelf.writes_left = writes
    try:
        queue.tick(NOW)
    except Died:
        return True
    finally:
        shelf.writes_left = None
    return False


@pytest.mark.parametrize("had_fired", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("passed", [timedelta(), timedelta(minutes=5)], ids=["at once", "after the interval"])
def test_a_slot_whose_taker_died_at_any_write_is_not_lost(had_fired: bool, passed: timedelta) -> None:
    writes = 0
    while True:
        shelf = Shelf()
        log = BlobRunLog(shelf)
        if had_fired:
            log.take_slot("orders", "cron:2026-11-16T02:00:00Z", "a:1:1")
        if not _die_in_a_tick(shelf, writes=writes):
            break
        was_taken = any(
            key.startswith("slots/") and "03:00" in body.decode() for key, (body, _) in shelf.objects.items()
        )
        queue = _queue(shelf)
        queue.recover()
        if not was_taken and passed:  # nothing was promised: the slot has not been fired
            assert log.pending_actions() == []
        else:
            queue.tick(NOW + passed)
            (run,) = log.pending_actions()
            assert run.extras["slot"] == SLOT
            assert log.last_slots()["orders"].run_id == run.run_id
        writes += 1
    assert writes > 3


def test_a_loser_completes_what_the_dead_winner_left() -> None:
    shelf = Shelf()
    log = BlobRunLog(shelf)
    shelf.writes_left = 2  # the announcement, and the slot
    with pytest.raises(Died):
        log.take_slot("orders", SLOT, "a:1:1", run_id="0123")
    shelf.writes_left = None
    assert log.slots("orders") == []
    assert not log.take_slot("orders", SLOT, "b:1:1", run_id="4567")
    assert [slot.run_id for slot in log.slots("orders")] == ["0123"]
    assert log.last_slots()["orders"].run_id == "0123"
    assert log.take_slot("orders", "cron:2026-11-16T04:00:00Z", "b:1:1", run_id="4567")
    assert log.last_slots()["orders"].run_id == "4567"


def test_an_older_slot_that_is_taken_late_does_not_become_the_last() -> None:
    shelf = Shelf()
    log = BlobRunLog(shelf)
    shelf.writes_left = 2
    with pytest.raises(Died):
        log.take_slot("orders", SLOT, "a:1:1", run_id="0123")
    shelf.writes_left = None
    assert log.take_slot("orders", "cron:2026-11-16T04:00:00Z", "b:1:1", run_id="4567")
    assert not log.take_slot("orders", SLOT, "b:1:1", run_id="89ab")
    assert log.last_slots()["orders"].run_id == "4567"


def test_of_several_takers_of_many_slots_each_slot_has_one() -> None:
    shelf, slots = Shelf(), [f"cron:2026-11-{day:02}T03:00:00Z" for day in range(1, 25)]

    def race(number: int) -> list[str]:
        log = BlobRunLog(shelf)
        return [slot for slot in slots if log.take_slot("orders", slot, f"host:{number}:1", run_id=str(number))]

    with ThreadPoolExecutor(4) as pool:
        taken = [slot for found in pool.map(race, range(4)) for slot in found]
    log = BlobRunLog(shelf)
    assert sorted(taken) == slots
    assert sorted(slot.slot for slot in log.slots("orders")) == slots
    assert log.last_slots()["orders"].slot == log.slots("orders", limit=1)[0].slot
