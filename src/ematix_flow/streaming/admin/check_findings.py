"""The findings of a checkpoint check, and the comparison of targets and dead letters with the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ematix_flow.streaming.admin.commit_tokens import LETTERS
from ematix_flow.streaming.admin.inspection import CheckpointInspection

OK, TO_DO, DAMAGED = "ok", "to do", "damaged"


@dataclass(frozen=True)
class Finding:
    """One line of a checkpoint check."""

    about: str
    status: str
    says: str
    next: str | None = None

    def to_dict(self) -> dict[str, str | None]:
        """Return the finding as JSON data."""
        return asdict(self)


def is_damaged(findings: Sequence[Finding]) -> bool:
    """Return whether the stream should not be started as it is."""
    return any(item.status == DAMAGED for item in findings)


def check_tokens(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Check that each target has the last committed batch, and at most the one after it."""
    for name, token in inspection.tokens.items():
        about = f"token of {name}"
        if isinstance(token, str):
            yield Finding(about, TO_DO, f"cannot be asked: {token}", "look again when the target answers")
        elif inspection.commits.last is not None:
            yield compare_token(
                about, token, inspection.commits.last, inspection, waiting=inspection.behind.get(name, 0)
            )


def compare_token(
    about: str, token: int | None, committed: int, inspection: CheckpointInspection, *, waiting: int
) -> Finding:
    """Compare a token, which is the number of its batch plus one, with the last committed batch."""
    if token is None:
        says = f"none, though batch {committed} is committed: is the target new, or was it emptied?"
        return Finding(about, TO_DO, says, f"flow stream rewind {inspection.pipeline} --to earliest --preview")
    batch = token - 1
    if batch == committed:
        return Finding(about, OK, f"batch {batch}, as committed")
    if batch == committed + 1:
        return Finding(about, OK, f"batch {batch}, one ahead: the next start sees that it is written")
    if batch > committed:
        says = f"batch {batch}, and the checkpoint is at {committed}: it is older than the target, and would lose rows"
        return Finding(about, DAMAGED, says, _newer(inspection))
    if waiting:
        return Finding(about, OK, f"batch {batch}; {waiting} more wait for it")
    says = f"batch {batch}, and batch {committed} is committed: the target is older than the checkpoint"
    has_end = inspection.can_begin_behind_batches and inspection.offsets.entries.get(batch, "") is None
    cure = (
        f"read again what it lost: flow stream repair {inspection.pipeline} --to-batch {batch}"
        if has_end
        else new_generation_hint(inspection)
    )
    return Finding(about, DAMAGED, says, cure)


def check_partial_commits(inspection: CheckpointInspection) -> Iterator[Finding]:
    """Check transactions and dead letters, which commit only some micro-batches: the last one must be planned."""
    planned = -1 if inspection.offsets.last is None else inspection.offsets.last
    for name, reach in inspection.reaches.items():
        about = f"token of {name}" if name != LETTERS else name
        if isinstance(reach, str):
            yield Finding(about, TO_DO, f"cannot be asked: {reach}", "look again when it answers")
        elif reach.batch is not None and reach.batch > planned:
            says = f"batch {reach.batch}, and the checkpoint is at {planned}: it is older, and would lose rows"
            yield Finding(about, DAMAGED, says, _newer(inspection))
        elif reach.strays:
            says = f"batch {reach.batch} was sent up to {'; '.join(reach.strays)}: the checkpoint was changed"
            yield Finding(about, DAMAGED, says, new_generation_hint(inspection))
        elif reach.batch is None and name != LETTERS:
            yield _no_token(about, inspection)
        else:
            yield Finding(about, OK, "none yet" if reach.batch is None else f"batch {reach.batch} is the newest")


def _no_token(about: str, inspection: CheckpointInspection) -> Finding:
    """Return the finding for no token: brokers drop the offsets of an unused group, after a week by default."""
    says = "none is kept: the stream has sent nothing yet, or stood longer than the broker's offsets.retention.minutes"
    if not _is_open(inspection):
        return Finding(about, OK, says)
    cure = "the open batch is sent by the next start; if it was sent before, its messages come twice"
    return Finding(about, TO_DO, says, cure)


def _is_open(inspection: CheckpointInspection) -> bool:
    planned, done = inspection.offsets.last, inspection.commits.last
    return planned is not None and (done is None or planned > done)


def new_generation_hint(inspection: CheckpointInspection) -> str:
    """Return the hint for a new checkpoint behind the last batch in both logs, from which rows are read again."""
    known = [number for number, wrong in inspection.commits.entries.items() if wrong is None]
    safe = max((number for number in known if inspection.offsets.entries.get(number, "") is None), default=None)
    if safe is not None and inspection.can_begin_behind_batches:
        return f"begin a new checkpoint where batch {safe} ended: flow stream repair {inspection.pipeline} --to-batch {safe}"
    return f"begin a new checkpoint where it is safe: flow stream rewind {inspection.pipeline} --to <moment> --preview"


def _newer(inspection: CheckpointInspection) -> str:
    return (
        f"bring the newer checkpoint back, or begin where the last run stood, whose record has its offsets: "
        f"flow runs list -p {inspection.pipeline}, flow stream rewind {inspection.pipeline} --to <offsets> --preview"
    )
