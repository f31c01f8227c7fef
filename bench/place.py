"""Where one invocation works: its scale, its folders, its servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests import services

from bench.model import Unavailable
from bench.tables import Table

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench"


@dataclass
class Place:
    """The scale, the cache that later invocations use again, and a folder that is gone at the end."""

    scale: float
    cache: Path
    work: Path = field(init=False)
    engines: Path = field(init=False)  # a short path: the socket of an engine may have 107 characters
    filled: set[str] = field(default_factory=set)  # what was already loaded into a server of this invocation
    _urls: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix="work-", dir=self.cache))
        self.engines = Path(tempfile.mkdtemp(prefix="flow-bench-"))

    def close(self) -> None:
        """Remove the folders; servers end with the process."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.engines, ignore_errors=True)

    def rows(self, table: Table) -> int:
        """How many rows of the table are moved at this scale."""
        return table.rows if not table.origin else max(1, round(table.rows * self.scale))

    def postgres(self) -> str:
        """The URL of a PostgreSQL superuser."""
        return self._started("postgres", services.start_postgres)

    def mysql(self) -> str:
        """The URL of a MySQL 8 user who may do everything."""
        return self._started("mysql", services.start_mysql8)

    def kafka(self) -> str:
        """The address of a Kafka broker that lets everybody in."""
        return urlsplit(self._started("kafka", services.start_kafka)).netloc

    def _started(self, kind: str, start: Callable[[], services.Server]) -> str:
        if kind not in self._urls:
            try:
                self._urls[kind] = start().url
            except services.ServiceMissing as missing:
                raise Unavailable(str(missing)) from missing
        return self._urls[kind]
