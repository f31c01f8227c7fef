"""What a case is made of: contestants, goals, a source and a target; all of it plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.fingerprint import Fingerprint
    from bench.place import Place
    from bench.tables import Table

PRODUCT = "product"
WARM = "warm"
STOCK = "stock"
SAIL = "sail"
TENTH = "tenth"


class Unavailable(Exception):
    """A contestant or a case cannot run here; the text says why."""


@dataclass(frozen=True)
class Contestant:
    """One who does the work, by a command in an environment of its own.

    In `command` and `variables`, {bin} is the environment's folder of programs, {peers} and {pipelines} are ours.
    """

    name: str
    label: str
    command: tuple[str, ...]
    jars: tuple[str, ...] = ()  # sets of bench/jars.lock.toml or of the product's lock, given as BENCH_JARS
    variables: tuple[tuple[str, str], ...] = ()
    environment: str = ""  # where it is not the name
    marks_rows: bool = False  # its tables have the columns _loaded_at and _batch_id
    stop_after: float = 0  # seconds; who takes longer is stopped, runs once only, and its time is a lower bound
    opens: tuple[str, ...] = ()  # a command before the first run: the contestant is warm from then on
    closes: tuple[str, ...] = ()
    warmups: int = 1  # uncounted runs, for each one that the invocation asks for
    note: str = ""

    @property
    def is_product(self) -> bool:
        """Whether it is the product on Apache Spark, with a process of its own or on a warm engine."""
        return self.name in (PRODUCT, WARM)

    @property
    def home(self) -> str:
        """The name of its environment; the product, on either engine, and stock PySpark share the project's own."""
        return self.environment or ("" if self.name in (PRODUCT, WARM, SAIL, STOCK, TENTH) else self.name)


@dataclass(frozen=True)
class Goal:
    """So many times as fast as a peer, so many seconds at most, or so little of what the case counts.

    `who` is the product unless it says otherwise.
    """

    peer: str = STOCK
    at_least: float = 0
    at_most_seconds: float = 0
    at_most: float = 0  # the figure itself, in the unit of the case
    at_most_more: float = 0  # the figure less the peer's, in the unit of the case
    at_most_times: float = 0  # the figure divided by the peer's
    who: str = PRODUCT
    said: str = ""  # the goal in words, where a plain ratio does not tell

    @property
    def text(self) -> str:
        """The goal as the page shows it."""
        if self.said:
            return self.said
        if self.at_most_times:
            return f"≤ {self.at_most_times:g}× the time of"
        return f"≤ {self.at_most_seconds:g} s" if self.at_most_seconds else f"≥ {self.at_least:g}×"


class Source(Protocol):
    """Where the rows come from."""

    def prepare(self, place: Place, table: Table) -> Mapping[str, str]:
        """Fill it, once for the whole case; the variables that tell contestants where it is."""


class Target(Protocol):
    """Where the rows go, and how its own client sees them there."""

    def reset(self, place: Place, table: Table, contestant: Contestant) -> Mapping[str, str]:
        """Make it as it has to be before a run; the variables that tell the contestant where it is."""

    def read(self, place: Place, table: Table, contestant: Contestant) -> Fingerprint:
        """What is in it after a run."""


@dataclass(frozen=True)
class Case:
    """One row of the page, or several when there are several goals."""

    name: str
    title: str
    contestants: tuple[Contestant, ...]
    goals: tuple[Goal, ...]
    table: Table | None = None
    source: Source | None = None
    target: Target | None = None
    # Rows that every contestant has loaded before, by the same command; its target is put back to that before a run.
    before: Table | None = None
    is_read_back: bool = True  # False where nothing is loaded
    is_warm: bool = False
    # A case whose contestants time themselves: gives their seconds by step out of the folder of one run.
    steps: Callable[[Path], Mapping[str, float]] | None = None
    # Its own preparation and check, where source and target do not say it all.
    prepare: Callable[[Place], Mapping[str, str]] | None = None
    check: Callable[[Place, Path], str] | None = None  # empty when the results are right
    note: str = ""
    unit: str = ""  # of the steps, where they are not seconds


@dataclass
class Run:
    """One measured run of one contestant."""

    wall: float
    cpu: float  # of the command's processes, and of the warm engine that it used
    peak_mb: float
    load: float  # the machine's load average just before
    stopped: bool = False
    left_running: int = 0
    steps: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)  # seconds by step, out of the product's run log
    problem: str = ""  # why it does not count
