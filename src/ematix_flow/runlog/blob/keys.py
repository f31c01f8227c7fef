"""Names of objects: any text as part of a key, and keys that list the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from urllib.parse import quote, unquote

from ematix_flow.runlog.records import RunRecord, in_utc

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FAR = 10**17


def encode(name: str) -> str:
    """A name as part of a key: letters, digits, - and _ stay, anything else becomes =XX.

    >>> encode("load orders/eu.1")
    'load=20orders=2Feu=2E1'
    """
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E").replace("%", "=")


def decode(text: str) -> str:
    """The name behind it."""
    return unquote(text.replace("=", "%"))


def backwards(moment: datetime) -> str:
    """A number of one width that gets smaller as time goes on: listed in order, the newest comes first."""
    return f"{_FAR - (in_utc(moment) - _EPOCH) // timedelta(microseconds=1):017d}"


@dataclass(frozen=True)
class RunKeys:
    """The objects of one run: its record, and empty ones by which it is found."""

    back: str
    pipeline: str
    run_id: str

    @classmethod
    def of(cls, record: RunRecord) -> RunKeys:
        """Where this record belongs."""
        return cls(backwards(record.started_at), encode(record.pipeline), encode(record.run_id))

    @classmethod
    def by_id(cls, key: str) -> RunKeys:
        """The run behind a key of `ids/`."""
        run_id, back, pipeline = key.rpartition("/")[2].split(".")
        return cls(back, pipeline, run_id)

    @classmethod
    def by_time(cls, key: str) -> RunKeys:
        """The run behind a key of `all/` or `requested/`."""
        back, pipeline, run_id = key.rpartition("/")[2].split(".")
        return cls(back, pipeline, run_id)

    @property
    def record(self) -> str:
        """The record itself; those of one pipeline list the newest first."""
        return f"runs/{self.pipeline}/{self.back}.{self.run_id}.json"

    @property
    def id(self) -> str:
        """Found by the first letters of the run's id."""
        return f"ids/{self.run_id}.{self.back}.{self.pipeline}"

    @property
    def all(self) -> str:
        """Found among the runs of all pipelines."""
        return f"all/{self.back}.{self.pipeline}.{self.run_id}"

    @property
    def requested(self) -> str:
        """Found among what was asked for."""
        return f"requested/{self.back}.{self.pipeline}.{self.run_id}"
