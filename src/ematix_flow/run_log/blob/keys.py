"""Object keys: any text encoded as part of a key, and keys that list the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import quote, unquote

from ematix_flow.run_log.records import RunRecord, in_utc

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FAR = 10**17


def encode(name: str) -> str:
    """Return a name as part of a key: letters, digits, - and _ stay, anything else becomes =XX.

    >>> encode("load orders/eu.1")
    'load=20orders=2Feu=2E1'
    """
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", "=")


def decode(text: str) -> str:
    """Return the name that was encoded."""
    return unquote(text.replace("=", "%"))


def newest_first_number(moment: datetime) -> str:
    """Return a fixed-width number that decreases with time, so that listing in key order gives the newest first."""
    return f"{_FAR - (in_utc(moment) - _EPOCH) // timedelta(microseconds=1):017d}"


@dataclass(frozen=True)
class RunKeys:
    """The keys of one run's objects: its record, and empty objects that serve as indexes."""

    back: str
    pipeline: str
    run_id: str

    @classmethod
    def of(cls, record: RunRecord) -> RunKeys:
        """Return the keys for this record."""
        return cls(newest_first_number(record.started_at), encode(record.pipeline), encode(record.run_id))

    @classmethod
    def by_id(cls, key: str) -> RunKeys:
        """Return the keys of the run with this key in `ids/`."""
        run_id, back, pipeline = key.rpartition("/")[2].split(".")
        return cls(back, pipeline, run_id)

    @classmethod
    def by_time(cls, key: str) -> RunKeys:
        """Return the keys of the run with this key in `all/` or `requested/`."""
        back, pipeline, run_id = key.rpartition("/")[2].split(".")
        return cls(back, pipeline, run_id)

    @property
    def record(self) -> str:
        """Return the key of the record; the records of one pipeline list the newest first."""
        return f"runs/{self.pipeline}/{self.back}.{self.run_id}.json"

    @property
    def id(self) -> str:
        """Return the index key by run id, which also allows a prefix search."""
        return f"ids/{self.run_id}.{self.back}.{self.pipeline}"

    @property
    def all(self) -> str:
        """Return the index key among the runs of all pipelines."""
        return f"all/{self.back}.{self.pipeline}.{self.run_id}"

    @property
    def requested(self) -> str:
        """Return the index key among the requested runs."""
        return f"requested/{self.back}.{self.pipeline}.{self.run_id}"
