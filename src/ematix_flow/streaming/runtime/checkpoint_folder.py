"""The folder of a stream: Spark's checkpoint, generation, learned schemas, spools."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ematix_flow.config.resolve import known_names, resolve
from ematix_flow.declare.connections.lakes import BucketConnection
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.clock import now
from ematix_flow.foundation.errors import ConfigError, FlowError, LeaseHeld, LeaseLost, RunFailed
from ematix_flow.storage import file_locks
from ematix_flow.storage.addresses import bucket_in, path_of_address, register_bucket
from ematix_flow.storage.paths import LakePath, make_folder, read_text_if_exists, rename, write_atomically
from ematix_flow.storage.s3_bucket import S3Bucket
from ematix_flow.storage.spark_checkpoint import last_planned

VARIABLE = "EMATIX_FLOW_CHECKPOINTS"
NOTE = "flow.json"
_PATIENCE_SECONDS = 5.0
"""How long to wait for the lock: a process that is stopping may need a moment."""
_STRANGE = re.compile(r"[^\w.-]")
_OF_A_GENERATION = ("spark", "arrivals", "arrivals-1", "behind", "state", "ticks")
"""Entries that belong to a generation; the learned schema, dead letters and spools outlast it."""


@dataclass(frozen=True)
class CheckpointFolder:
    """The folder of one stream: on this machine, on a disk that all machines share, or in a bucket."""

    root: LakePath

    @classmethod
    def of(cls, spec: StreamSpec) -> CheckpointFolder:
        """Return `checkpoint=`, else EMATIX_FLOW_CHECKPOINTS/<name>, else a folder below the user's home."""
        address = spec.checkpoint or os.environ.get(VARIABLE) or str(Path.home() / ".ematix-flow" / "checkpoints")
        name = bucket_in(address)
        if name is not None:
            register_bucket(_login(spec, name))
        root = path_of_address(address)
        return cls(root if spec.checkpoint else root / _STRANGE.sub("_", spec.name))

    @property
    def spark(self) -> LakePath:
        """Return the folder of Spark's own checkpoint."""
        return self.root / "spark"

    @property
    def jars(self) -> set[str]:
        """Return the jars that Spark needs to read and write the folder."""
        return set() if isinstance(self.root, Path) else {"s3a"}

    def prepare(self) -> str:
        """Make the folder; return its generation, which is new whenever the checkpoint is."""
        if isinstance(self.root, Path):
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise ConfigError(
                    f"the checkpoint folder {self.root} cannot be made: {exc.strerror}",
                    hint=f"name another with checkpoint=, or set {VARIABLE}",
                ) from exc
        kept = self.read_metadata()
        if kept.get("aside"):  # a process died during a rewind
            self._put_aside(path_of_address(kept["aside"]))
        known = kept.get("generation")
        if known is None:
            self._refuse_to_guess()
            known = new_generation()
            self.write_generation(known)
        return str(known)

    def _refuse_to_guess(self) -> None:
        """Raise for a started checkpoint without a generation: under a new one, targets would repeat a batch."""
        if self.last_planned() is not None:
            raise RunFailed(
                f"{self.root / NOTE} is gone, though the checkpoint beside it has begun",
                hint="flow doctor checkpoint NAME says what is left, and flow stream repair NAME brings it back",
            )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the folder against all processes that see this disk, also where no run log provides a lease."""
        if not isinstance(self.root, Path):  # a bucket has the lease alone
            yield
            return
        with file_locks.lock_file(self.root / "lock", self._in_use, seconds=_PATIENCE_SECONDS):
            yield

    def _in_use(self) -> LeaseHeld:
        return LeaseHeld(
            f"another process works with the checkpoint in {self.root}",
            hint="one at a time: end the other one (flow stream stop NAME), or wait for it",
        )

    def read_metadata(self) -> Mapping[str, Any]:
        """Return the folder's metadata: generation, and after a rewind where to start."""
        return self._read(NOTE)

    def write_generation(self, generation: str) -> None:
        """Write the generation of the checkpoint."""
        write_atomically(self.root / NOTE, json.dumps({"generation": generation, "since": _later_than(0)}))

    def require_generation(self, generation: str) -> None:
        """Raise LeaseLost after a rewind by another process: tables detect an old generation, brokers do not."""
        if self.read_metadata().get("generation") != generation:
            raise LeaseLost(
                f"the stream in {self.root} was begun anew while this process stood still, which writes nothing any more",
                hint="flow runs list shows who runs it now",
            )

    def generation_order(self) -> int:
        """Return a number that is larger for every later generation, also for one that began in an empty folder."""
        return int(self.read_metadata().get("since") or 0)

    def start_at(self, source: int = 0) -> str | None:
        """Return where a source of a rewound stream begins; None once it has begun, and without a rewind."""
        try:
            kept = self.read_metadata().get("start")
            has_begun = kept is None or last_planned(str(self.root)) is not None
        except RunFailed:  # reported when the stream starts
            return None
        if has_begun:
            return None
        return str(kept[source] if isinstance(kept, list) else kept)

    def start_new_generation(self, start: str | Sequence[str], at: datetime) -> LakePath:
        """Begin a new generation at a start, or one for each source; return where the old checkpoint is now.

        The metadata file is written first: if the process crashes after that, the next start does the rest.
        """
        aside = self.root.with_name(f"{self.root.name}.before-{at:%Y%m%dT%H%M%S%f}")
        make_folder(aside)
        note, before = read_text_if_exists(self.root / NOTE), 0
        if note is not None:  # copied unparsed, since it may be damaged
            write_atomically(aside / NOTE, note)
            with suppress(RunFailed):
                before = self.generation_order()
        decided = {
            "generation": new_generation(), "since": _later_than(before), "start": start, "aside": str(aside),
        }  # fmt: skip
        write_atomically(self.root / NOTE, json.dumps(decided))
        self._put_aside(aside)
        return aside

    def _put_aside(self, aside: LakePath) -> None:
        make_folder(aside)
        for name in _OF_A_GENERATION:
            path = self.root / name
            if path.exists() and not (isinstance(aside, Path) and (aside / name).exists()):  # resumes in a bucket
                rename(path, aside / name)
        done = {name: value for name, value in self.read_metadata().items() if name != "aside"}
        write_atomically(self.root / NOTE, json.dumps(done))

    def ends(self, batch: int) -> list[dict[str, Any]]:
        """Return where a micro-batch ends, source by source, as Spark planned it; empty where it never did."""
        path = self.spark / "offsets" / str(batch)
        if not path.exists():
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > 2 and lines[0].startswith("v"):
                return [json.loads(line) if line != "-" else {} for line in lines[2:]]
        except ValueError:  # raised below
            pass
        raise RunFailed(
            f"the checkpoint entry {path} is damaged", hint="flow doctor checkpoint NAME says what is wrong with it"
        )

    def last_committed(self) -> int | None:
        """Return the last micro-batch that Spark committed."""
        return _largest_entry(self.spark / "commits")

    def last_planned(self) -> int | None:
        """Return the last micro-batch that Spark planned."""
        return _largest_entry(self.spark / "offsets")

    def has_open_batch(self) -> bool:
        """Return whether a micro-batch was planned and not committed: the next start does it again."""
        planned, done = self.last_planned(), self.last_committed()
        return planned is not None and (done is None or planned > done)

    def learned(self, source: int = 0) -> SchemaFile:
        """Return the file with the learned schema of a source's payload."""
        return SchemaFile(self.root / (f"schema-{source}.json" if source else "schema.json"))

    def _read(self, name: str) -> Mapping[str, Any]:
        path = self.root / name
        if not path.exists():
            return {}
        try:
            kept: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as exc:
            raise RunFailed(
                f"{path} is damaged", hint="flow doctor checkpoint NAME says what is wrong with it"
            ) from exc
        return kept


def _login(spec: StreamSpec, bucket: str) -> S3Bucket:
    """Return the bucket by a connection to it: one of the stream's own, else any that is known here."""
    own = [item.connection for item in (*spec.sources, *spec.targets, *spec.lookups.values())]
    for name in (*own, *known_names()):
        try:
            connection = resolve(name).connection
        except FlowError:  # reported where the connection is used
            continue
        if isinstance(connection, BucketConnection) and connection.resolved().bucket == bucket:
            return S3Bucket.of(connection)
    raise ConfigError(
        f"{spec.name} keeps its checkpoint in the bucket {bucket!r}, and no connection has its login",
        hint="declare a connection of kind delta_s3 or object_store_s3 with that bucket",
        where=spec.where,
    )


def _largest_entry(log: LakePath) -> int | None:
    numbers = [int(item.name) for item in log.iterdir() if item.name.isdigit()] if log.is_dir() else []
    return max(numbers, default=None)


def _later_than(before: int) -> int:
    """Return milliseconds of the clock, above `before`: they also order generations of unrelated folders."""
    return max(before + 1, int(now().timestamp() * 1000))


def new_generation() -> str:
    """Return a name that no checkpoint had before."""
    return uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class SchemaFile:
    """The file of a learned schema, which outlasts the process."""

    path: LakePath

    def load(self) -> str | None:
        """Return the schema as Spark writes it, None before the first message."""
        return read_text_if_exists(self.path)

    def save(self, schema: str) -> None:
        """Write the schema."""
        write_atomically(self.path, schema)
