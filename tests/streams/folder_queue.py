"""A broker that is a folder: every message a file, gone when it is acknowledged, delivered again until then."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ematix_flow.contract.stream import StreamRead
from ematix_flow.foundation.errors import MissingTable, Unreachable
from ematix_flow.spool.receiver import Delivery, MakeReceiver
from ematix_flow.spool.source import SpoolSource


@dataclass(frozen=True)
class FolderQueue:
    """As its publishers and its operator see it."""

    root: Path

    def publish(self, messages: Iterable[tuple[str | None, str]]) -> None:
        """Ids and texts."""
        for folder in ("ready", "dead"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for number, (message_id, text) in enumerate(messages, time.time_ns()):
            draft = self.root / f"draft-{number}"
            draft.write_text(json.dumps({"id": message_id, "text": text}))
            draft.rename(self.root / "ready" / str(number))

    def left(self) -> list[str]:
        """Texts that nobody acknowledged."""
        return self._texts("ready")

    def dead(self) -> list[str]:
        """Texts that were refused."""
        return self._texts("dead")

    def go_down(self) -> None:
        """Nobody answers any more."""
        (self.root / "down").touch()

    def come_back(self) -> None:
        """Somebody answers again."""
        (self.root / "down").unlink()

    def _texts(self, folder: str) -> list[str]:
        return [json.loads((self.root / folder / name).read_text())["text"] for name in self._numbers(folder)]

    def _numbers(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.root / folder).iterdir()) if (self.root / folder).exists() else []


class FolderReceiver:
    """As its consumer sees it."""

    renew_seconds: float | None = None
    rejects_at_once = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self._given: set[str] = set()
        self._window = 0

    def connect(self, window: int) -> None:
        self._answered()
        if not (self._root / "ready").exists():
            raise MissingTable(f"queue {self._root.name!r} is not there")
        self._window = window

    def waiting(self) -> int | None:
        return len(self._fresh())

    def receive(self, limit: int, timeout: float) -> Sequence[Delivery]:
        self._answered()
        room = min(limit, self._window - len(self._given)) if self._window else limit
        deadline = time.monotonic() + timeout
        while not (fresh := self._fresh() if room > 0 else []) and time.monotonic() < deadline:
            time.sleep(0.01)
        return [self._delivered(name) for name in fresh[:room]]

    def ack(self, tags: Sequence[Any]) -> None:
        self._answered()
        for tag in tags:
            (self._root / "ready" / tag).unlink(missing_ok=True)
            self._given.discard(tag)

    def nack(self, tags: Sequence[Any], *, requeue: bool) -> None:
        self._answered()
        for tag in tags:
            if not requeue and (self._root / "ready" / tag).exists():
                (self._root / "ready" / tag).rename(self._root / "dead" / tag)
            self._given.discard(tag)

    def extend(self, tags: Sequence[Any]) -> None:
        self._answered()

    def close(self) -> None:
        self._given.clear()

    def again(self, tag: str) -> Delivery:
        """A delivery that comes twice on one connection, as some brokers do when they waited too long."""
        return self._delivered(tag)

    @property
    def given(self) -> list[str]:
        """What was delivered and not answered."""
        return sorted(self._given)

    def _answered(self) -> None:
        if (self._root / "down").exists():
            raise Unreachable(f"no server answers at {self._root}")

    def _fresh(self) -> list[str]:
        found = sorted(path.name for path in (self._root / "ready").iterdir())
        return [name for name in found if name not in self._given]

    def _delivered(self, name: str) -> Delivery:
        told = json.loads((self._root / "ready" / name).read_text())
        self._given.add(name)
        return Delivery(value=told["text"].encode(), tag=name, message_id=told["id"], headers=(("n", b"1"),))


class FolderSource(SpoolSource):
    """A stream's source; the connection is the folder above the queues."""

    def receiver(self, read: StreamRead) -> MakeReceiver:
        return partial(FolderReceiver, Path(self.connection.path) / read.query)

    def check(self, read: StreamRead) -> None:
        self.receiver(read)().connect(1)

    def waiting(self, read: StreamRead) -> int | None:
        receiver = self.receiver(read)()
        receiver.connect(1)
        return receiver.waiting()
