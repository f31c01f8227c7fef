"""The checkpoint check: one finding for each thing that must be consistent, and the repairs that lose no rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.contract.stream import LostRows
from ematix_flow.declare.streams.spec import StreamSpec
from ematix_flow.foundation.errors import FlowError
from ematix_flow.run_log import lease
from ematix_flow.storage.os_errors import translated_os_errors
from ematix_flow.storage.paths import remove, rename
from ematix_flow.streaming.admin.check_findings import (
    DAMAGED,
    OK,
    TO_DO,
    Finding,
    check_partial_commits,
    check_tokens,
    new_generation_hint,
)
from ematix_flow.streaming.admin.commit_tokens import known_generations
from ematix_flow.streaming.admin.inspection import CheckpointInspection, CheckpointLog, inspect_checkpoint
from ematix_flow.streaming.admin.status import recorded_action
from ematix_flow.streaming.runtime.checkpoint_folder import CheckpointFolder, new_generation

if TYPE_CHECKING:
    from ematix_flow.run_log.protocol import RunLog

REMOVE, ASIDE, GENERATION, FINISH = "remove", "aside", "generation", "finish"


def check_all(inspection: CheckpointInspection) -> list[Finding]:
    """Return all findings on a stream's checkpoint."""
    if not inspection.exists:
        return [Finding("folder", OK, f"{inspection.root} is not there: the stream has never run")]
    running = f", and {inspection.holder} works with it" if inspection.holder else ""
    findings = [Finding("folder", OK, f"{inspection.root}{running}"), check_generation(inspection)]
    findings += [
        check_log("offset log", inspection.offsets, inspection),
        check_log("commit log", inspection.commits, inspection),
    ]
    findings += [
        check_order(inspection),
        *check_tokens(inspection),
        *check_partial_commits(inspection),
        check_retention(inspection),
        check_schema(inspection),
        *check_state(inspection),
        *check_spools(inspection),
        *check_backlogs(inspection),
        *check_drafts(inspection),
    ]
    return findings


def check_generation(inspection: CheckpointInspection) -> Finding:
    """Check the file with the generation, which identifies the valid commit tokens."""
    if inspection.unfinished_rewind:
        return Finding("generation", TO_DO, "a rewind was begun and not finished", "the next start finishes it")
    if inspection.note_problem is None:
        return Finding("generation", OK, str(inspection.generation))
    if not inspection.offsets.entries:
        return Finding("generation", OK, "there is none yet: the stream has read nothing")
    return Finding(
        "generation",
        DAMAGED,
        f"flow.json {inspection.note_problem}: targets would not know which batches they have",
        f"flow stream repair {inspection.pipeline} --yes",
    )


def check_log(name: str, log: CheckpointLog, inspection: CheckpointInspection) -> Finding:
    """Check that a log has no gaps, and that all its entries can be read."""
    if not log.entries:
        return Finding(name, OK, "empty")
    if log.bad == [log.last]:
        repairable = any(log is item for item, _ in _half_written(inspection))
        cure = f"flow stream repair {inspection.pipeline}" if repairable else new_generation_hint(inspection)
        return Finding(name, DAMAGED, f"its last entry, {log.last}, {log.entries[log.bad[0]]}", cure)
    if log.bad:
        listed = ", ".join(f"{number} {log.entries[number]}" for number in log.bad[:3])
        in_use = any(number >= (log.last or 0) - 1 for number in log.bad)
        if in_use:
            return Finding(name, DAMAGED, f"entry {listed}", new_generation_hint(inspection))
        return Finding(name, TO_DO, f"entry {listed}", "Spark needs the last two only: nothing but a look at the disk")
    if log.missing:
        shown = ", ".join(map(str, log.missing[:5])) + (" …" if len(log.missing) > 5 else "")
        if (log.last or 0) - 1 in log.missing:
            return Finding(name, DAMAGED, f"entry {shown} is missing", new_generation_hint(inspection))
        return Finding(
            name, TO_DO, f"entry {shown} is missing", "Spark needs the last two only: see who removes files there"
        )
    return Finding(name, OK, f"entries {min(log.entries)} to {log.last}")


def check_order(inspection: CheckpointInspection) -> Finding:
    """Check the order of the logs: Spark plans a batch, and commits it before it plans the next."""
    planned, done = inspection.offsets.last, inspection.commits.last
    if planned is None and done is None:
        return Finding("order", OK, "nothing was planned yet")
    if planned is None or (done is not None and done > planned):
        return Finding(
            "order", DAMAGED, f"batch {done} is committed and was never planned", new_generation_hint(inspection)
        )
    open_ = planned - done if done is not None else planned + 1
    if open_ == 0:
        return Finding("order", OK, f"batch {planned} is the last, and committed")
    if open_ == 1:
        return Finding("order", OK, f"batch {planned} is planned and not committed: the next start does it again")
    return Finding(
        "order",
        DAMAGED,
        f"{open_} batches are planned and not committed, and there can be one",
        new_generation_hint(inspection),
    )


def check_retention(inspection: CheckpointInspection) -> Finding:
    """Check that the source still has what the stream has not read."""
    if isinstance(inspection.lost, str):
        return Finding("source", TO_DO, f"cannot be asked: {inspection.lost}", "look again when the source answers")
    if not inspection.lost:
        return Finding("source", OK, "keeps everything that was not read")
    says = "no longer keeps " + "; ".join(map(_gap, inspection.lost))
    return Finding(
        "source",
        DAMAGED,
        says,
        f"go on behind the gap, knowingly: flow stream rewind {inspection.pipeline} --to earliest",
    )


def check_schema(inspection: CheckpointInspection) -> Finding:
    """Check the learned schema of the messages."""
    if inspection.schema_problems:
        says = "; ".join(f"{name} {wrong}: it is learned anew" for name, wrong in inspection.schema_problems.items())
        return Finding("learned schema", DAMAGED, says, f"flow stream repair {inspection.pipeline} --yes")
    return Finding("learned schema", OK, "readable" if inspection.has_schema else "nothing was learned")


def check_state(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Check that the state of a window or a join is that of the last batch, or of the one that is retried."""
    if not inspection.is_stateful or inspection.offsets.last is None:
        return
    done = -1 if inspection.commits.last is None else inspection.commits.last
    if isinstance(inspection.state, str):
        yield Finding("state", TO_DO, f"cannot be asked: {inspection.state}", "look again when it answers")
    elif inspection.state is None and done >= 0:
        yield Finding("state", DAMAGED, f"is gone, though batch {done} is committed", new_generation_hint(inspection))
    elif inspection.state is not None and inspection.state not in (done, done + 1):
        yield Finding(
            "state",
            DAMAGED,
            f"batch {inspection.state}, and batch {done} is committed",
            new_generation_hint(inspection),
        )
    else:
        yield Finding(
            "state", OK, "nothing is remembered yet" if inspection.state is None else f"batch {inspection.state}"
        )


def check_spools(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Report messages that wait on disk."""
    for item in inspection.spools:
        if item.is_used:
            yield Finding("spool", OK, f"{item.name}: {item.messages:,} messages on disk")
        else:
            cure = f"let the stream read its old source to the end, or remove {inspection.root}/spool/{item.name}"
            yield Finding(
                "spool", TO_DO, f"{item.name}: {item.messages:,} messages of a source that is not read any more", cure
            )


def check_backlogs(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Report micro-batches that a target missed."""
    if not inspection.behind:
        yield Finding("backlog", OK, "no target is behind")
    for name, count in inspection.behind.items():
        yield Finding(
            "backlog",
            TO_DO,
            f"{name} has {count} micro-batch(es) to catch up",
            "it gets them when the stream runs and it answers",
        )


def check_drafts(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Report temporary files that a dead process left behind."""
    count = len(inspection.offsets.drafts) + len(inspection.commits.drafts) + len(inspection.behind_drafts)
    if count:
        yield Finding("leftovers", TO_DO, f"{count} draft(s) of files", f"flow stream repair {inspection.pipeline}")


def _gap(item: LostRows) -> str:
    rows = f"{item.rows:,} message(s)" if item.rows is not None else "messages"
    kept = f", kept from {item.first_kept} on" if item.first_kept else ", all of it is gone"
    return f"{rows} of {item.part} from {item.first_wanted}{kept}"


# Repairs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RepairStep:
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
class RepairResult:
    """The steps done, the steps that wait for confirmation, and the findings afterwards."""

    done: tuple[RepairStep, ...]
    waiting: tuple[RepairStep, ...]
    findings: tuple[Finding, ...]


def repair_checkpoint(spec: StreamSpec, *, confirmed: bool, run_log: RunLog | None) -> RepairResult:
    """Carry out the repairs that are safe or confirmed, while no process runs the stream."""
    with lease.hold_lease(run_log, spec.name):
        steps = plan_repair(inspect_checkpoint(spec), known=_known_generations(spec))
        done = tuple(step for step in steps if confirmed or not step.needs_word)
        if done:
            with recorded_action(run_log, spec.name, "repair", lambda: {"steps": [step.says for step in done]}):
                folder = CheckpointFolder.of(spec)
                for step in done:
                    _apply_step(step, folder)
        return RepairResult(
            done, tuple(step for step in steps if step not in done), tuple(check_all(inspect_checkpoint(spec)))
        )


def plan_repair(
    inspection: CheckpointInspection, *, known: Mapping[str, Mapping[str, int]] | None = None
) -> list[RepairStep]:
    """Return the possible repairs; `known` are the generations in the targets, with their last sequences."""
    return [
        *_unfinished(inspection),
        *(step for _, step in _half_written(inspection)),
        *_leftovers(inspection),
        *_generation(inspection, known or {}),
        *_schema(inspection),
    ]


def _unfinished(inspection: CheckpointInspection) -> Iterator[RepairStep]:
    if inspection.unfinished_rewind:
        yield RepairStep(FINISH, "finish the rewind that was begun")


def _half_written(inspection: CheckpointInspection) -> Iterator[tuple[CheckpointLog, RepairStep]]:
    """Yield repairs of the last entry of a log only: the batch is then planned, or done, once more."""
    commits, offsets = inspection.commits, inspection.offsets
    done, last = commits.last, offsets.last
    if done is not None and commits.bad == [done]:
        says = (
            f"remove the half-written commit of batch {done}: the batch is done again, and targets that have it say so"
        )
        yield commits, RepairStep(REMOVE, says, _entry("commits", done))
    if (
        last is None
        or offsets.bad != [last]
        or (done is not None and done >= last)
        or inspection.note_problem is not None
    ):
        return
    # The batch is planned anew, and may be another one: a target that has a batch of this number would skip it.
    if all(token is None or (isinstance(token, int) and token <= last) for token in _sequences(inspection)):
        says = f"remove the half-written plan of batch {last}: no target has any of it"
        yield offsets, RepairStep(REMOVE, says, _entry("offsets", last))


def _sequences(inspection: CheckpointInspection) -> Iterator[int | str | None]:
    yield from inspection.tokens.values()
    for reach in inspection.reaches.values():
        yield reach if isinstance(reach, str) else None if reach.batch is None else reach.batch + 1


def _leftovers(inspection: CheckpointInspection) -> Iterator[RepairStep]:
    drafts = (*inspection.offsets.drafts, *inspection.commits.drafts, *inspection.behind_drafts)
    if drafts:
        yield RepairStep(REMOVE, f"remove {len(drafts)} draft(s) that were never finished", drafts)


def _generation(inspection: CheckpointInspection, known: Mapping[str, Mapping[str, int]]) -> Iterator[RepairStep]:
    if inspection.note_problem is None or not inspection.offsets.entries:
        return
    generation_found = generation_in_targets(inspection, known)
    if generation_found is not None:
        yield RepairStep(
            GENERATION,
            f"write flow.json anew with {generation_found}, which the targets name",
            (generation_found,),
            needs_word=True,
        )
        return
    says = "write flow.json anew with a new generation: rows of a batch that was not committed may come twice where they are appended"
    yield RepairStep(GENERATION, says, needs_word=True)


def generation_in_targets(inspection: CheckpointInspection, known: Mapping[str, Mapping[str, int]]) -> str | None:
    """Return the generation in the targets, where exactly one has got as far as the checkpoint."""
    done = -1 if inspection.commits.last is None else inspection.commits.last
    fitting = {
        generation
        for sequences in known.values()
        for generation, sequence in sequences.items()
        if sequence - 1 in (done, done + 1)
    }
    return fitting.pop() if len(fitting) == 1 else None


def _schema(inspection: CheckpointInspection) -> Iterator[RepairStep]:
    for name in inspection.schema_problems:
        yield RepairStep(ASIDE, f"put {name} aside: the messages tell it anew", (name,), needs_word=True)


def _entry(log: str, number: int) -> tuple[str, str]:
    """Return the paths of an entry, and of the checksum that Spark keeps beside it."""
    return f"spark/{log}/{number}", f"spark/{log}/.{number}.crc"


def _known_generations(spec: StreamSpec) -> dict[str, Mapping[str, int]]:
    by_target: dict[str, Mapping[str, int]] = {}
    for target in spec.targets:
        with suppress(FlowError):  # a target that does not answer contributes no generations
            by_target[target.name] = known_generations(spec, CheckpointFolder.of(spec), target)
    return by_target


def _apply_step(step: RepairStep, folder: CheckpointFolder) -> None:
    if step.kind == FINISH:
        folder.prepare()
    elif step.kind == GENERATION:
        folder.write_generation(step.paths[0] if step.paths else new_generation())
    for name in step.paths if step.kind in (REMOVE, ASIDE) else ():
        path = folder.root / name
        if step.kind == ASIDE:
            rename(path, path.with_name(f"{path.name}.damaged"))
        elif path.is_dir():
            remove(path)
        else:
            with translated_os_errors(path):
                path.unlink(missing_ok=True)
