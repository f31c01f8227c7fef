"""The inspection of a stream: reads its folder, its targets and its source, without checking or changing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from ematix_flow.contract.stream import LostRows, StreamRead, StreamSource
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask
from ematix_flow.spool.segments import Segment
from ematix_flow.spool.source import SpoolSource
from ematix_flow.storage.paths import LakePath
from ematix_flow.streaming.admin.commit_tokens import PartialCommit, other_commits, table_tokens
from ematix_flow.streaming.runtime.backlog import Backlog
from ematix_flow.streaming.runtime.checkpoint_folder import NOTE, CheckpointFolder
from ematix_flow.streaming.runtime.opening import source_of
from ematix_flow.streaming.state.local_state import state_backend_of

_Sources = Sequence[tuple[StreamSource, StreamRead]]


@dataclass(frozen=True)
class CheckpointLog:
    """One of Spark's logs: entries with their errors, and unfinished temporary files (paths below the folder)."""

    entries: Mapping[int, str | None] = field(default_factory=dict)
    drafts: tuple[str, ...] = ()

    @property
    def last(self) -> int | None:
        """Return the newest entry, readable or not."""
        return max(self.entries, default=None)

    @property
    def bad(self) -> list[int]:
        """Return the entries that cannot be read."""
        return sorted(number for number, wrong in self.entries.items() if wrong is not None)

    @property
    def missing(self) -> list[int]:
        """Return the missing numbers between the first and the last entry."""
        numbers = sorted(self.entries)
        return [one for one in range(numbers[0], numbers[-1]) if one not in self.entries] if numbers else []


@dataclass(frozen=True)
class SpoolState:
    """A spool below the stream's folder."""

    name: str
    messages: int
    drafts: int
    is_used: bool
    """Whether a source of the stream reads it, or may read it: the sources could not be opened."""


@dataclass(frozen=True)
class CheckpointInspection:
    """Everything that the checks need; a value that could not be read is its error message."""

    pipeline: str
    root: str
    exists: bool = True
    generation: str | None = None
    note_problem: str | None = None
    unfinished_rewind: bool = False
    offsets: CheckpointLog = field(default_factory=CheckpointLog)
    commits: CheckpointLog = field(default_factory=CheckpointLog)
    schema_problems: Mapping[str, str] = field(default_factory=dict)
    """The errors of files with learned schemas, by file name."""
    has_schema: bool = False
    tokens: Mapping[str, int | str | None] = field(default_factory=dict)
    """The tokens of tables, which commit every micro-batch."""
    reaches: Mapping[str, PartialCommit | str] = field(default_factory=dict)
    """The last micro-batches of transactions and dead letters, which commit only some."""
    lost: Sequence[LostRows] | str = ()
    behind: Mapping[str, int] = field(default_factory=dict)
    behind_drafts: tuple[str, ...] = ()
    spools: tuple[SpoolState, ...] = ()
    state: int | str | None = None
    """The last micro-batch in the state of a window or a join; None where there is none."""
    is_stateful: bool = False
    holder: str | None = None
    """The process that runs the stream now."""
    can_begin_behind_batches: bool = True
    """Whether the source can start at the offsets of the checkpoint, as Kafka and Kinesis can."""


def inspect_checkpoint(spec: StreamSpec, *, holder: str | None = None) -> CheckpointInspection:
    """Read the folder, and query source and targets."""
    folder = CheckpointFolder.of(spec)
    if not folder.root.is_dir():
        return CheckpointInspection(spec.name, str(folder.root), exists=False, holder=holder)
    note, problem = _read_note(folder)
    generation = str(note["generation"]) if note.get("generation") else None
    offsets, commits = _log(folder.spark / "offsets", least=3), _log(folder.spark / "commits", least=2)
    behind, drafts = backlog(spec, folder)
    tokens = table_tokens(spec, generation) if generation and offsets.entries else {}
    reaches = other_commits(spec, folder, generation) if generation and offsets.entries else {}
    is_stateful = spec.window is not None or spec.join is not None
    if is_stateful:  # most micro-batches produce no output, and tables commit none for those
        tokens, reaches = {}, {**reaches, **{name: _as_partial_commit(token) for name, token in tokens.items()}}
    learned = [folder.learned(number).path for number in range(len(spec.sources))]
    with _open_source(spec, folder) as sources:
        return CheckpointInspection(
            spec.name,
            str(folder.root),
            generation=generation,
            note_problem=problem,
            unfinished_rewind=bool(note.get("aside")),
            offsets=offsets,
            commits=commits,
            schema_problems={file.name: wrong for file in learned if (wrong := _schema(file)) is not None},
            has_schema=any(file.exists() for file in learned),
            tokens=tokens,
            reaches=reaches,
            lost=_lost(sources, folder, commits),
            behind=behind,
            behind_drafts=drafts,
            spools=tuple(_spools(sources, folder)),
            state=_state(spec, folder, generation) if is_stateful else None,
            is_stateful=is_stateful,
            holder=holder,
            can_begin_behind_batches=not isinstance(sources, str) and all(_takes_offsets(item) for item, _ in sources),
        )


def _as_partial_commit(token: int | str | None) -> PartialCommit | str:
    return token if isinstance(token, str) else PartialCommit(None if token is None else token - 1)


def _state(spec: StreamSpec, folder: CheckpointFolder, generation: str | None) -> int | str | None:
    """Return the last micro-batch in a stream's state, or the error that keeps it from being read."""
    if generation is None:
        return None
    try:
        with closing(state_backend_of(spec, folder, generation)) as backend:
            manifest = backend.manifest()
    except FlowError as error:
        return mask(error.what)
    return manifest.number if manifest is not None else None


def _takes_offsets(source: StreamSource) -> bool:
    """Return whether a source starts at offsets: lakes start at versions and moments, and queues have no past."""
    return source.envelopes and not isinstance(source, SpoolSource)


@contextmanager
def _open_source(spec: StreamSpec, folder: CheckpointFolder) -> Iterator[_Sources | str]:
    """Yield the stream's sources in their order, or the error for which one of them cannot be opened."""
    sources: list[tuple[StreamSource, StreamRead]] = []
    with ExitStack() as open_until:
        try:
            for number in range(len(spec.sources)):
                source, read, _ = source_of(spec, number, folder, once=False)
                open_until.callback(source.close)
                sources.append((source, read))
        except FlowError as error:
            yield mask(error.what)
            return
        yield sources


def _read_note(folder: CheckpointFolder) -> tuple[Mapping[str, object], str | None]:
    if not (folder.root / NOTE).exists():
        return {}, "is not there"
    try:
        note = folder.read_metadata()
    except FlowError:
        return {}, "cannot be read"
    return note, None if note.get("generation") else "names no generation"


def _log(folder: LakePath, *, least: int) -> CheckpointLog:
    """Check every entry: a version, and at least `least` lines, of which all after the first are JSON or a dash."""
    if not folder.is_dir():
        return CheckpointLog()
    entries: dict[int, str | None] = {}
    for item in folder.iterdir():
        if item.name.isdigit():
            entries[int(item.name)] = _entry_problem(item, least)
    drafts = sorted(f"spark/{folder.name}/{item.name}" for item in folder.iterdir() if item.name.endswith(".tmp"))
    return CheckpointLog(entries, tuple(drafts))


def find_damage(folder: CheckpointFolder) -> str | None:
    """Return the error in the last entry of one of Spark's logs, which Spark cannot read; None where there is none."""
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


def _schema(path: LakePath) -> str | None:
    """Return the error in a file with a learned schema; None where it is well or absent."""
    if not path.exists():
        return None
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "cannot be read"
    return None if isinstance(schema, dict) and "fields" in schema else "is no schema"


def backlog(spec: StreamSpec, folder: CheckpointFolder) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the micro-batches that wait for a target, and unfinished ones on disk."""
    kept = Backlog(folder.root / "behind")
    targets = [item for item in kept.root.iterdir() if item.is_dir()] if kept.root.is_dir() else []
    drafts = [f"behind/{item.name}/{one.name}" for item in targets for one in item.iterdir() if one.name[0] == "."]
    return kept.counted([target.name for target in spec.targets]), tuple(sorted(drafts))


def _lost(sources: _Sources | str, folder: CheckpointFolder, commits: CheckpointLog) -> Sequence[LostRows] | str:
    """Return the unread rows that the sources dropped after the last committed batch, or the error."""
    if isinstance(sources, str):
        return sources
    done = [number for number, wrong in commits.entries.items() if wrong is None]
    try:
        ends = folder.ends(max(done)) if done else []
        return tuple(
            lost for (source, read), end in zip(sources, ends, strict=False) if end for lost in source.lost(read, end)
        )
    except FlowError as error:
        return mask(error.what)
    except (ValueError, KeyError, TypeError):
        return "the last offsets are not in this source's form"


def _spools(sources: _Sources | str, folder: CheckpointFolder) -> Iterator[SpoolState]:
    root = folder.root / "spool"
    if not root.is_dir():
        return
    is_unknown = isinstance(sources, str)
    opened = () if isinstance(sources, str) else sources
    used = {str(source.folder(read).root) for source, read in opened if isinstance(source, SpoolSource)}
    for item in sorted((one for one in root.iterdir() if one.is_dir()), key=lambda one: one.name):
        names = [one.name for one in item.iterdir()]
        segments = [segment for name in names if (segment := Segment.of(name)) is not None]
        drafts = sum(name.endswith(".part") for name in names)
        yield SpoolState(item.name, sum(segment.rows for segment in segments), drafts, is_unknown or str(item) in used)
