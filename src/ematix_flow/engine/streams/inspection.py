"""What is in a stream's folder and what its targets and its source say of it; nothing is judged or changed here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from ematix_flow.contract.stream import Lost, StreamRead, StreamSource
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine.streams.backlog import Backlog
from ematix_flow.engine.streams.folder import NOTE, StreamFolder
from ematix_flow.engine.streams.opening import source_of
from ematix_flow.engine.streams.stateful.keepers import keeper_of
from ematix_flow.engine.streams.tokens import Reach, of_others, of_tables
from ematix_flow.families.lake.place import LakePath
from ematix_flow.families.spool.segments import Segment
from ematix_flow.families.spool.source import SpoolSource
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask


@dataclass(frozen=True)
class Log:
    """One of Spark's logs: its entries, each with what is wrong with it, and drafts (below the folder) left unfinished."""

    entries: Mapping[int, str | None] = field(default_factory=dict)
    drafts: tuple[str, ...] = ()

    @property
    def last(self) -> int | None:
        """The newest entry, be it readable or not."""
        return max(self.entries, default=None)

    @property
    def bad(self) -> list[int]:
        """Entries that cannot be read."""
        return sorted(number for number, wrong in self.entries.items() if wrong is not None)

    @property
    def missing(self) -> list[int]:
        """Numbers between the first and the last that are not there."""
        numbers = sorted(self.entries)
        return [one for one in range(numbers[0], numbers[-1]) if one not in self.entries] if numbers else []


@dataclass(frozen=True)
class Spooled:
    """A spool below the stream's folder."""

    name: str
    messages: int
    drafts: int
    is_used: bool


@dataclass(frozen=True)
class Look:
    """Everything a judgement needs; texts stand where something could not be asked."""

    pipeline: str
    root: str
    exists: bool = True
    generation: str | None = None
    note_problem: str | None = None
    unfinished_rewind: bool = False
    offsets: Log = field(default_factory=Log)
    commits: Log = field(default_factory=Log)
    schema_problem: str | None = None
    has_schema: bool = False
    tokens: Mapping[str, int | str | None] = field(default_factory=dict)
    """Of tables, which have every micro-batch."""
    reaches: Mapping[str, Reach | str] = field(default_factory=dict)
    """Of those who have only some: transactions, and dead letters."""
    lost: Sequence[Lost] | str = ()
    behind: Mapping[str, int] = field(default_factory=dict)
    behind_drafts: tuple[str, ...] = ()
    spools: tuple[Spooled, ...] = ()
    state: int | str | None = None
    """The micro-batch that a window or a join has folded last; None where there is none."""
    is_stateful: bool = False
    holder: str | None = None
    """Who runs the stream at this moment."""
    can_begin_behind_batches: bool = True
    """Whether the source takes the offsets of the checkpoint as a beginning, as Kafka and Kinesis do."""


def look(spec: StreamSpec, *, holder: str | None = None) -> Look:
    """Read the folder, and ask source and targets."""
    folder = StreamFolder.of(spec)
    if not folder.root.is_dir():
        return Look(spec.name, str(folder.root), exists=False, holder=holder)
    note, problem = _note(folder)
    generation = str(note["generation"]) if note.get("generation") else None
    offsets, commits = _log(folder.spark / "offsets", least=3), _log(folder.spark / "commits", least=2)
    behind, drafts = backlog(spec, folder)
    tokens = of_tables(spec, generation) if generation and offsets.entries else {}
    reaches = of_others(spec, folder, generation) if generation and offsets.entries else {}
    is_stateful = spec.window is not None or spec.join is not None
    if is_stateful:  # nothing comes out of most micro-batches, and tables do not hear of those
        tokens, reaches = {}, {**reaches, **{name: _reach(token) for name, token in tokens.items()}}
    with _opened(spec, folder) as source:
        return Look(
            spec.name,
            str(folder.root),
            generation=generation,
            note_problem=problem,
            unfinished_rewind=bool(note.get("aside")),
            offsets=offsets,
            commits=commits,
            schema_problem=_schema(folder),
            has_schema=folder.learned().path.exists(),
            tokens=tokens,
            reaches=reaches,
            lost=_lost(source, folder, commits),
            behind=behind,
            behind_drafts=drafts,
            spools=tuple(_spools(source, folder)),
            state=_state(spec, folder, generation) if is_stateful else None,
            is_stateful=is_stateful,
            holder=holder,
            can_begin_behind_batches=not isinstance(source, str) and _takes_offsets(source[0]),
        )


def _reach(token: int | str | None) -> Reach | str:
    return token if isinstance(token, str) else Reach(None if token is None else token - 1)


def _state(spec: StreamSpec, folder: StreamFolder, generation: str | None) -> int | str | None:
    """The micro-batch up to which a stream remembers, or why that cannot be told."""
    if generation is None:
        return None
    try:
        with closing(keeper_of(spec, folder, generation)) as keeper:
            kept = keeper.kept()
    except FlowError as error:
        return mask(error.what)
    return kept.number if kept is not None else None


def _takes_offsets(source: StreamSource) -> bool:
    """Lakes begin at versions and moments, and queues have no past."""
    return source.envelopes and not isinstance(source, SpoolSource)


@contextmanager
def _opened(spec: StreamSpec, folder: StreamFolder) -> Iterator[tuple[StreamSource, StreamRead] | str]:
    """The source, or why there is none."""
    try:
        source, read, _ = source_of(spec, 0, folder, once=False)
    except FlowError as error:
        yield mask(error.what)
        return
    try:
        yield source, read
    finally:
        source.close()


def _note(folder: StreamFolder) -> tuple[Mapping[str, object], str | None]:
    if not (folder.root / NOTE).exists():
        return {}, "is not there"
    try:
        note = folder.note()
    except FlowError:
        return {}, "cannot be read"
    return note, None if note.get("generation") else "names no generation"


def _log(folder: LakePath, *, least: int) -> Log:
    """Every entry is a version, and so many lines, of which all behind the first are JSON or a dash."""
    if not folder.is_dir():
        return Log()
    entries: dict[int, str | None] = {}
    for item in folder.iterdir():
        if item.name.isdigit():
            entries[int(item.name)] = _entry_problem(item, least)
    drafts = sorted(f"spark/{folder.name}/{item.name}" for item in folder.iterdir() if item.name.endswith(".tmp"))
    return Log(entries, tuple(drafts))


def damage(folder: StreamFolder) -> str | None:
    """What keeps Spark from reading its logs, as far as the last entries show it."""
    for name, least in (("offsets", 3), ("commits", 2)):
        log = _log(folder.spark / name, least=least)
        if log.last is not None and log.entries[log.last] is not None:
            return f"the last entry of its {name} log, {log.last}, {log.entries[log.last]}"
    return None


def _entry_problem(path: LakePath, least: int) -> str | None:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        return f"cannot be read ({type(exc).__name__})"
    if not lines:
        return "is empty"
    if not lines[0].startswith("v") or len(lines) < least:
        return "is cut short"
    for line in lines[1:]:
        try:
            if line != "-":
                json.loads(line)
        except ValueError:
            return "is cut short or overwritten"
    return None


def _schema(folder: StreamFolder) -> str | None:
    path = folder.learned().path
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "cannot be read"
    return None if isinstance(found, dict) and "fields" in found else "is no schema"


def backlog(spec: StreamSpec, folder: StreamFolder) -> tuple[dict[str, int], tuple[str, ...]]:
    """Micro-batches that wait for a target, and drafts of some."""
    kept = Backlog(folder.root / "behind")
    targets = [item for item in kept.root.iterdir() if item.is_dir()] if kept.root.is_dir() else []
    drafts = [f"behind/{item.name}/{one.name}" for item in targets for one in item.iterdir() if one.name[0] == "."]
    return kept.counted([target.name for target in spec.targets]), tuple(sorted(drafts))


def _lost(asked: tuple[StreamSource, StreamRead] | str, folder: StreamFolder, commits: Log) -> Sequence[Lost] | str:
    """What the source dropped behind the last batch that is done."""
    if isinstance(asked, str):
        return asked
    source, read = asked
    done = [number for number, wrong in commits.entries.items() if wrong is None]
    try:
        ends = folder.ends(max(done)) if done else []
        return tuple(source.lost(read, ends[0])) if ends and ends[0] else ()
    except FlowError as error:
        return mask(error.what)
    except (ValueError, KeyError, TypeError):
        return "the last offsets are not in this source's form"


def _spools(asked: tuple[StreamSource, StreamRead] | str, folder: StreamFolder) -> Iterator[Spooled]:
    root = folder.root / "spool"
    if not root.is_dir():
        return
    used: str | None = None
    if not isinstance(asked, str):
        own = getattr(asked[0], "folder", None)  # brokers without offsets have one
        used = str(own(asked[1]).root) if own is not None else None
    for item in sorted((one for one in root.iterdir() if one.is_dir()), key=lambda one: one.name):
        names = [one.name for one in item.iterdir()]
        segments = [segment for name in names if (segment := Segment.of(name)) is not None]
        drafts = sum(name.endswith(".part") for name in names)
        yield Spooled(item.name, sum(segment.rows for segment in segments), drafts, str(item) == used)
