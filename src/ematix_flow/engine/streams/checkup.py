"""The checkpoint check: one finding for each thing that must be consistent, and the repairs that lose no rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import Lost
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.engine import lease
from ematix_flow.engine.streams.findings import DAMAGED, OK, TO_DO, Finding, anew, reaches, tokens
from ematix_flow.engine.streams.folder import StreamFolder, new_generation
from ematix_flow.engine.streams.inspection import Log, Look, look
from ematix_flow.engine.streams.standing import recorded
from ematix_flow.engine.streams.tokens import generations
from ematix_flow.families.lake.place import explained, remove, rename
from ematix_flow.foundation.errors import FlowError

if TYPE_CHECKING:
    from ematix_flow.runlog.protocol import RunLog

REMOVE, ASIDE, GENERATION, FINISH = "remove", "aside", "generation", "finish"


def judge(seen: Look) -> list[Finding]:
    """Return all findings on a stream's checkpoint."""
    if not seen.exists:
        return [Finding("folder", OK, f"{seen.root} is not there: the stream has never run")]
    running = f", and {seen.holder} works with it" if seen.holder else ""
    found = [Finding("folder", OK, f"{seen.root}{running}"), generation(seen)]
    found += [one_log("offset log", seen.offsets, seen), one_log("commit log", seen.commits, seen)]
    found += [
        order(seen),
        *tokens(seen),
        *reaches(seen),
        retention(seen),
        schema(seen),
        *state(seen),
        *spools(seen),
        *backlogs(seen),
        *drafts(seen),
    ]
    return found


def generation(seen: Look) -> Finding:
    """Check the file with the generation, which identifies the valid commit tokens."""
    if seen.unfinished_rewind:
        return Finding("generation", TO_DO, "a rewind was begun and not finished", "the next start finishes it")
    if seen.note_problem is None:
        return Finding("generation", OK, str(seen.generation))
    if not seen.offsets.entries:
        return Finding("generation", OK, "there is none yet: the stream has read nothing")
    return Finding(
        "generation",
        DAMAGED,
        f"flow.json {seen.note_problem}: targets would not know which batches they have",
        f"flow stream repair {seen.pipeline} --yes",
    )


def one_log(name: str, log: Log, seen: Look) -> Finding:
    """Check that a log has no gaps, and that all its entries can be read."""
    if not log.entries:
        return Finding(name, OK, "empty")
    if log.bad == [log.last]:
        repairable = any(log is item for item, _ in _half_written(seen))
        cure = f"flow stream repair {seen.pipeline}" if repairable else anew(seen)
        return Finding(name, DAMAGED, f"its last entry, {log.last}, {log.entries[log.bad[0]]}", cure)
    if log.bad:
        listed = ", ".join(f"{number} {log.entries[number]}" for number in log.bad[:3])
        in_use = any(number >= (log.last or 0) - 1 for number in log.bad)
        if in_use:
            return Finding(name, DAMAGED, f"entry {listed}", anew(seen))
        return Finding(name, TO_DO, f"entry {listed}", "Spark needs the last two only: nothing but a look at the disk")
    if log.missing:
        shown = ", ".join(map(str, log.missing[:5])) + (" …" if len(log.missing) > 5 else "")
        if (log.last or 0) - 1 in log.missing:
            return Finding(name, DAMAGED, f"entry {shown} is missing", anew(seen))
        return Finding(
            name, TO_DO, f"entry {shown} is missing", "Spark needs the last two only: see who removes files there"
        )
    return Finding(name, OK, f"entries {min(log.entries)} to {log.last}")


def order(seen: Look) -> Finding:
    """Check the order of the logs: Spark plans a batch, and commits it before it plans the next."""
    planned, done = seen.offsets.last, seen.commits.last
    if planned is None and done is None:
        return Finding("order", OK, "nothing was planned yet")
    if planned is None or (done is not None and done > planned):
        return Finding("order", DAMAGED, f"batch {done} is committed and was never planned", anew(seen))
    open_ = planned - done if done is not None else planned + 1
    if open_ == 0:
        return Finding("order", OK, f"batch {planned} is the last, and committed")
    if open_ == 1:
        return Finding("order", OK, f"batch {planned} is planned and not committed: the next start does it again")
    return Finding("order", DAMAGED, f"{open_} batches are planned and not committed, and there can be one", anew(seen))


def retention(seen: Look) -> Finding:
    """Check that the source still has what the stream has not read."""
    if isinstance(seen.lost, str):
        return Finding("source", TO_DO, f"cannot be asked: {seen.lost}", "look again when the source answers")
    if not seen.lost:
        return Finding("source", OK, "keeps everything that was not read")
    says = "no longer keeps " + "; ".join(map(_gap, seen.lost))
    return Finding(
        "source", DAMAGED, says, f"go on behind the gap, knowingly: flow stream rewind {seen.pipeline} --to earliest"
    )


def schema(seen: Look) -> Finding:
    """Check the learned schema of the messages."""
    if seen.schema_problems:
        says = "; ".join(f"{name} {wrong}: it is learned anew" for name, wrong in seen.schema_problems.items())
        return Finding("learned schema", DAMAGED, says, f"flow stream repair {seen.pipeline} --yes")
    return Finding("learned schema", OK, "readable" if seen.has_schema else "nothing was learned")


def state(seen: Look) -> Iterator[Finding]:
    """Check that the state of a window or a join is that of the last batch, or of the one that is retried."""
    if not seen.is_stateful or seen.offsets.last is None:
        return
    done = -1 if seen.commits.last is None else seen.commits.last
    if isinstance(seen.state, str):
        yield Finding("state", TO_DO, f"cannot be asked: {seen.state}", "look again when it answers")
    elif seen.state is None and done >= 0:
        yield Finding("state", DAMAGED, f"is gone, though batch {done} is committed", anew(seen))
    elif seen.state is not None and seen.state not in (done, done + 1):
        yield Finding("state", DAMAGED, f"batch {seen.state}, and batch {done} is committed", anew(seen))
    else:
        yield Finding("state", OK, "nothing is remembered yet" if seen.state is None else f"batch {seen.state}")


def spools(seen: Look) -> Iterator[Finding]:
    """Report messages that wait on disk."""
    for item in seen.spools:
        if item.is_used:
            yield Finding("spool", OK, f"{item.name}: {item.messages:,} messages on disk")
        else:
            cure = f"let the stream read its old source to the end, or remove {seen.root}/spool/{item.name}"
            yield Finding(
                "spool", TO_DO, f"{item.name}: {item.messages:,} messages of a source that is not read any more", cure
            )


def backlogs(seen: Look) -> Iterator[Finding]:
    """Report micro-batches that a target missed."""
    if not seen.behind:
        yield Finding("backlog", OK, "no target is behind")
    for name, count in seen.behind.items():
        yield Finding(
            "backlog",
            TO_DO,
            f"{name} has {count} micro-batch(es) to catch up",
            "it gets them when the stream runs and it answers",
        )


def drafts(seen: Look) -> Iterator[Finding]:
    """Report temporary files that a dead process left behind."""
    count = len(seen.offsets.drafts) + len(seen.commits.drafts) + len(seen.behind_drafts)
    if count:
        yield Finding("leftovers", TO_DO, f"{count} draft(s) of files", f"flow stream repair {seen.pipeline}")


def _gap(item: Lost) -> str:
    rows = f"{item.rows:,} message(s)" if item.rows is not None else "messages"
    kept = f", kept from {item.first_kept} on" if item.first_kept else ", all of it is gone"
    return f"{rows} of {item.part} from {item.first_wanted}{kept}"


# Repairs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One repair."""

    kind: str
    says: str
    paths: tuple[str, ...] = ()
    """Paths below the stream's folder; for a generation, its name."""
    needs_word: bool = False
    """Whether a user has to confirm it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON data."""
        return {"what": self.says, "paths": list(self.paths), "needs_yes": self.needs_word}


@dataclass(frozen=True)
class Repaired:
    """The steps done, the steps that wait for confirmation, and the findings afterwards."""

    done: tuple[Step, ...]
    waiting: tuple[Step, ...]
    findings: tuple[Finding, ...]


def repair(spec: StreamSpec, *, confirmed: bool, run_log: RunLog | None) -> Repaired:
    """Carry out the repairs that are safe or confirmed, while no process runs the stream."""
    with lease.held(run_log, spec.name):
        steps = plan(look(spec), known=_known(spec))
        done = tuple(step for step in steps if confirmed or not step.needs_word)
        if done:
            with recorded(run_log, spec.name, "repair", lambda: {"steps": [step.says for step in done]}):
                folder = StreamFolder.of(spec)
                for step in done:
                    _do(step, folder)
        return Repaired(done, tuple(step for step in steps if step not in done), tuple(judge(look(spec))))


def plan(seen: Look, *, known: Mapping[str, Mapping[str, int]] | None = None) -> list[Step]:
    """Return the possible repairs; `known` are the generations in the targets, with their last sequences."""
    return [
        *_unfinished(seen),
        *(step for _, step in _half_written(seen)),
        *_leftovers(seen),
        *_generation(seen, known or {}),
        *_schema(seen),
    ]


def _unfinished(seen: Look) -> Iterator[Step]:
    if seen.unfinished_rewind:
        yield Step(FINISH, "finish the rewind that was begun")


def _half_written(seen: Look) -> Iterator[tuple[Log, Step]]:
    """Yield repairs of the last entry of a log only: the batch is then planned, or done, once more."""
    commits, offsets = seen.commits, seen.offsets
    done, last = commits.last, offsets.last
    if done is not None and commits.bad == [done]:
        says = (
            f"remove the half-written commit of batch {done}: the batch is done again, and targets that have it say so"
        )
        yield commits, Step(REMOVE, says, _entry("commits", done))
    if last is None or offsets.bad != [last] or (done is not None and done >= last) or seen.note_problem is not None:
        return
    # The batch is planned anew, and may be another one: a target that has a batch of this number would skip it.
    if all(token is None or (isinstance(token, int) and token <= last) for token in _sequences(seen)):
        says = f"remove the half-written plan of batch {last}: no target has any of it"
        yield offsets, Step(REMOVE, says, _entry("offsets", last))


def _sequences(seen: Look) -> Iterator[int | str | None]:
    yield from seen.tokens.values()
    for reach in seen.reaches.values():
        yield reach if isinstance(reach, str) else None if reach.batch is None else reach.batch + 1


def _leftovers(seen: Look) -> Iterator[Step]:
    drafts = (*seen.offsets.drafts, *seen.commits.drafts, *seen.behind_drafts)
    if drafts:
        yield Step(REMOVE, f"remove {len(drafts)} draft(s) that were never finished", drafts)


def _generation(seen: Look, known: Mapping[str, Mapping[str, int]]) -> Iterator[Step]:
    if seen.note_problem is None or not seen.offsets.entries:
        return
    found = remembered(seen, known)
    if found is not None:
        yield Step(GENERATION, f"write flow.json anew with {found}, which the targets name", (found,), needs_word=True)
        return
    says = "write flow.json anew with a new generation: rows of a batch that was not committed may come twice where they are appended"
    yield Step(GENERATION, says, needs_word=True)


def remembered(seen: Look, known: Mapping[str, Mapping[str, int]]) -> str | None:
    """Return the generation in the targets, where exactly one has got as far as the checkpoint."""
    done = -1 if seen.commits.last is None else seen.commits.last
    fitting = {
        generation
        for sequences in known.values()
        for generation, sequence in sequences.items()
        if sequence - 1 in (done, done + 1)
    }
    return fitting.pop() if len(fitting) == 1 else None


def _schema(seen: Look) -> Iterator[Step]:
    for name in seen.schema_problems:
        yield Step(ASIDE, f"put {name} aside: the messages tell it anew", (name,), needs_word=True)


def _entry(log: str, number: int) -> tuple[str, str]:
    """Return the paths of an entry, and of the checksum that Spark keeps beside it."""
    return f"spark/{log}/{number}", f"spark/{log}/.{number}.crc"


def _known(spec: StreamSpec) -> dict[str, Mapping[str, int]]:
    found: dict[str, Mapping[str, int]] = {}
    for target in spec.targets:
        with suppress(FlowError):  # a target that does not answer contributes no generations
            found[target.name] = generations(spec, StreamFolder.of(spec), target)
    return found


def _do(step: Step, folder: StreamFolder) -> None:
    if step.kind == FINISH:
        folder.prepare()
    elif step.kind == GENERATION:
        folder.keep_generation(step.paths[0] if step.paths else new_generation())
    for name in step.paths if step.kind in (REMOVE, ASIDE) else ():
        path = folder.root / name
        if step.kind == ASIDE:
            rename(path, path.with_name(f"{path.name}.damaged"))
        elif path.is_dir():
            remove(path)
        else:
            with explained(path):
                path.unlink(missing_ok=True)
