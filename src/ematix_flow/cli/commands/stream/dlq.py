"""The command `flow dlq`: lists, shows, replays, parks and purges the dead letters of a stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ematix_flow.cli.flags import run_log_options
from ematix_flow.cli.lazy import FlowGroup
from ematix_flow.cli.loading import module as modules
from ematix_flow.cli.loading.run_log_choice import RunLogOptions
from ematix_flow.cli.loading.stream_choice import chosen_stream, declared_streams, stream_options
from ematix_flow.cli.render.output import Output, labelled_lines
from ematix_flow.cli.render.units import format_local_time
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.errors import FlowError, UnknownName

if TYPE_CHECKING:
    from ematix_flow.streaming.dlq.dead_letter import DeadLetter, LetterSelection

_F = TypeVar("_F", bound=Callable[..., Any])
_HEADER = ("ID", "STAGE", "TARGET", "STATUS", "TRIES", "FAILED", "POSITION", "ERROR")
_STATUSES = ("pending", "leased", "parked")
_SHORT_ID = 12
_ID = re.compile(r"[0-9a-f]{1,64}")
_SHORT_ERROR = 70
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

_stream_option: Callable[[_F], _F] = click.option(
    "-s", "--stream", metavar="NAME", help="the stream; optional if only one is declared"
)
_all_option: Callable[[_F], _F] = click.option("--all", "everything", is_flag=True, help="select all dead letters")


group = FlowGroup("dlq", help="Manage dead letters: messages that a stream could not decode, transform or write.")


@group.command("list", short_help="list dead letters, the newest first, with counts")
@click.argument("name", required=False)
@click.option("--status", type=click.Choice(_STATUSES), help="only dead letters with this status")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="show at most N")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="skip the newest N")
@_stream_option
@stream_options
@click.pass_obj
def list_command(output: Output, name: str | None, status: str | None, limit: int, offset: int, stream: str | None,
                 module: str | None, config: str | None) -> None:  # fmt: skip
    """List the dead letters of a stream, the newest first."""
    from ematix_flow.streaming.dlq import service

    spec = chosen_stream(stream or name, module, config)
    letters = service.list_letters(spec, status, limit=limit, offset=offset)
    stats = service.letter_stats(spec)
    if output.json:
        output.document({"pipeline": spec.name, **stats, "records": [letter.to_dict() for letter in letters]})
        return
    if letters:
        output.table([_row(letter) for letter in letters], header=_HEADER)
    depth = ", ".join(f"{count:,} {word}" for word, count in stats["depth"].items() if count)
    output.info(f"{spec.name}: {depth or 'no dead letters'}")


@group.command("show", short_help="show everything about one dead letter")
@click.argument("letters", metavar="[NAME] ID", nargs=-1, required=True)
@_stream_option
@stream_options
@click.pass_obj
def show_command(
    output: Output, letters: tuple[str, ...], stream: str | None, module: str | None, config: str | None
) -> None:
    """Show everything about one dead letter; a prefix of its id is enough."""
    from ematix_flow.streaming.dlq import service

    stream, letters = _stream_and_ids(letters, stream, module, config)
    if len(letters) != 1:
        raise click.UsageError("name one message by its id")
    (letter,) = letters
    spec = chosen_stream(stream, module, config)
    dead_letter = service.find_letter(spec, letter)
    if dead_letter is None:
        raise UnknownName(f"{spec.name} has no dead letter {letter!r}", hint=f"flow dlq list {spec.name}")
    output.result(dead_letter.to_dict(preview=None), "\n".join(_details(dead_letter)))


@group.command("replay", short_help="process dead letters again")
@click.argument("letters", metavar="[NAME] [ID...]", nargs=-1)
@_all_option
@click.option("--first", type=click.IntRange(min=1), metavar="N", help="select the oldest N")
@click.option("--max-attempts", type=click.IntRange(min=1), metavar="N",
              help="park messages that fail in their Nth attempt  [default: dlq_max_attempts of the stream]")  # fmt: skip
@_stream_option
@stream_options
@run_log_options
@click.pass_obj
def replay_command(output: Output, letters: tuple[str, ...], everything: bool, first: int | None, max_attempts: int | None,
                   stream: str | None, module: str | None, config: str | None,
                   run_log_choice: RunLogOptions) -> int:  # fmt: skip
    """Process dead letters again with the stream's current declaration; the stream may be running.

    Those that succeed are deleted from the dead letters; those that fail again are kept with one more attempt counted.
    Dead letters in a topic are sent to the topic that they came from.
    """
    from ematix_flow.streaming.dlq import service

    stream, letters = _stream_and_ids(letters, stream, module, config)
    selection = _selection(letters, everything=everything, first=first)
    spec = chosen_stream(stream, module, config)
    with run_log_choice.writing(output) as run_log, modules.stdout_to_stderr():
        report = service.replay_letters(spec, selection, most_attempts=max_attempts, run_log=run_log)
    again = report.redeadlettered + report.parked
    failed = f", {report.redeadlettered:,} failed again" if report.redeadlettered else ""
    parked = f", {report.parked:,} failed for the last time and are parked" if report.parked else ""
    text = f"{spec.name}  {report.taken:,} taken, {report.succeeded:,} succeeded{failed}{parked}"
    output.result({"pipeline": spec.name, "report": report.to_dict()}, text)
    return exit_codes.PARTIAL if again and report.succeeded else exit_codes.DATA if again else exit_codes.OK


@group.command("park", short_help="keep dead letters, but leave them out of replays")
@click.argument("letters", metavar="[NAME] [ID...]", nargs=-1)
@_all_option
@_stream_option
@stream_options
@click.pass_obj
def park_command(output: Output, letters: tuple[str, ...], everything: bool, stream: str | None, module: str | None,
                 config: str | None) -> None:  # fmt: skip
    """Keep dead letters but leave them out of `replay --all`; by its id a parked one can still be replayed."""
    from ematix_flow.streaming.dlq import service

    stream, letters = _stream_and_ids(letters, stream, module, config)
    selection = _selection(letters, everything=everything)
    spec = chosen_stream(stream, module, config)
    _report(output, spec.name, "parked", service.park_letters(spec, selection))


@group.command("purge", short_help="delete dead letters permanently")
@click.argument("letters", metavar="[NAME] [ID...]", nargs=-1)
@_all_option
@click.option("--older-than", metavar="SPAN", help="only messages that failed longer ago than this (30d, 12h, 90m)")
@_stream_option
@stream_options
@click.pass_obj
def purge_command(output: Output, letters: tuple[str, ...], everything: bool, older_than: str | None, stream: str | None,
                  module: str | None, config: str | None) -> None:  # fmt: skip
    """Delete dead letters permanently, except those that a replay is processing."""
    from ematix_flow.streaming.dlq import service

    span = _duration(older_than) if older_than is not None else None
    stream, letters = _stream_and_ids(letters, stream, module, config)
    selection = _selection(letters, everything=everything, older_than=span)
    spec = chosen_stream(stream, module, config)
    _report(output, spec.name, "purged", service.purge_letters(spec, selection))


def _stream_and_ids(letters: tuple[str, ...], stream: str | None, module: str | None,
           config: str | None) -> tuple[str | None, tuple[str, ...]]:  # fmt: skip
    """Return the stream and the ids: `replay NAME ID` is `replay ID --stream NAME`, as ids are hexadecimal.

    A word that could be an id is a name if a stream is declared by it: more letters of the id make clear what is meant.
    """
    if stream is None and letters and (_ID.fullmatch(letters[0]) is None or _is_declared(letters[0], module, config)):
        return letters[0], letters[1:]
    return stream, letters


def _is_declared(name: str, module: str | None, config: str | None) -> bool:
    try:
        return name in declared_streams(module, config)
    except FlowError:  # where the failing declaration is needed, the choice of the stream raises the error
        return False


def _selection(letters: tuple[str, ...], *, everything: bool, first: int | None = None,
               older_than: timedelta | None = None) -> LetterSelection:  # fmt: skip
    from ematix_flow.streaming.dlq.dead_letter import LetterSelection

    options = [bool(letters), everything, first is not None, older_than is not None]
    if sum(options) != 1:
        words = (
            "name messages by their ids, or say --all"
            if not any(options)
            else "ids, --all and the like exclude each other"
        )
        raise click.UsageError(words)
    return LetterSelection(ids=letters, first=first, older_than=older_than)


def _duration(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,6})\s*([smhd])", text.strip())
    if match is None:
        raise click.UsageError(f"{text!r} is no span of time; write 30d, 12h or 90m")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def _report(output: Output, name: str, word: str, count: int) -> None:
    output.result({"pipeline": name, word: count}, f"{name}  {count:,} {word}")


def _row(letter: DeadLetter) -> tuple[str, ...]:
    error = letter.error.splitlines()[0] if letter.error else ""
    return (
        letter.id[:_SHORT_ID],
        letter.stage,
        letter.target or "-",
        letter.status,
        str(letter.attempt),
        format_local_time(letter.failed_at),
        _position(letter),
        error if len(error) <= _SHORT_ERROR else f"{error[: _SHORT_ERROR - 1]}…",
    )


def _position(letter: DeadLetter) -> str:
    place = letter.place
    at = "/".join(str(place[name]) for name in ("partition", "offset") if place.get(name) is not None)
    return " ".join(part for part in (letter.source_id, at or place.get("message_id")) if part) or "-"


def _details(letter: DeadLetter) -> list[str]:
    from ematix_flow.streaming.dlq.dead_letter import readable_body

    headers = ", ".join(f"{key}={readable_body(value)}" for key, value in letter.headers)
    facts = [
        ("id", letter.id),
        ("stream", letter.pipeline),
        ("stage", letter.stage),
        ("target", letter.target or ""),
        ("status", letter.status),
        ("tries", str(letter.attempt)),
        ("failed", format_local_time(letter.failed_at)),
        ("batch", str(letter.batch)),
        ("came from", _position(letter)),
        ("event", format_local_time(letter.event_ts) if letter.event_ts else ""),
        ("version", letter.version or ""),
        ("error", letter.error),
        ("key", readable_body(letter.key) or ""),
        ("headers", headers),
        (letter.payload_format, readable_body(letter.payload) or "nothing"),
    ]
    return labelled_lines(facts, width=11)
