"""Rendering of an error: a text of one screen (what, where, why, next command) or one JSON object."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import click

from ematix_flow.cli.render.output import Output
from ematix_flow.foundation import exit_codes
from ematix_flow.foundation.errors import FlowError
from ematix_flow.foundation.redact import mask


class Interrupted(Exception):
    """Raised for Ctrl-C; the text describes the state that was left behind."""


@dataclass(frozen=True)
class FailureContext:
    """The context of a failure that the error itself does not contain."""

    subject: str = ""
    step: str = ""
    aftermath: tuple[str, ...] = ()
    next_command: str = ""


def report_failure(error: BaseException, output: Output, about: FailureContext | None = None) -> int:
    """Write the failure to stdout as JSON, or to stderr as text; return its exit code."""
    about = about or FailureContext(next_command=_next_after_usage(error))
    if output.json:
        output.document(failure_to_dict(error))
    else:
        for line in failure_lines(error, output, about):
            output.info(line)
    if output.verbose and not isinstance(error, click.UsageError):
        click.echo(_traceback(error), err=True)
    return exit_code(error)


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error's class."""
    if isinstance(error, (FlowError, click.ClickException)):
        return error.exit_code
    interrupted = isinstance(error, (Interrupted, KeyboardInterrupt, click.Abort))
    return exit_codes.INTERRUPTED if interrupted else exit_codes.RUN_FAILED


def failure_to_dict(error: BaseException) -> dict[str, object]:
    """Return any error as a dict of the shape that FlowError has."""
    if isinstance(error, FlowError):
        return error.to_dict()
    name = "Interrupted" if exit_code(error) == exit_codes.INTERRUPTED else type(error).__name__
    if isinstance(error, click.UsageError):
        name = "UsageError"
    hint = "run it again with --verbose to see where" if _is_unexpected(error) else _next_after_usage(error) or None
    return {
        "error": name,
        "message": _what(error),
        "where": None,
        "hint": hint,
        "retryable": False,
        "exit_code": exit_code(error),
    }


def failure_lines(error: BaseException, output: Output, about: FailureContext) -> list[str]:
    """Return the lines that describe the failure to a user."""
    failed = f"{about.subject} failed{f' while {about.step}' if about.step else ''}: " if about.subject else ""
    what, *more = _what(error).splitlines() or [""]
    lines = [f"{output.paint('✗', 'red', err=True)} {failed}{what}", *(f"  {line}" for line in more)]
    if isinstance(error, FlowError):
        if error.where is not None:
            lines.append(f"  {error.where}   {error.where.text}".rstrip())
        if error.hint:
            lines += [f"  {line}" for line in error.hint.splitlines()]
    elif _is_unexpected(error) and not output.verbose:
        lines.append("  this was not expected; --verbose shows where it happened")
    if about.aftermath:
        lines.append(f"  {' · '.join(about.aftermath)}")
    if about.next_command:
        lines.append(f"next: {about.next_command}")
    return lines


def _what(error: BaseException) -> str:
    if isinstance(error, FlowError):
        return error.what
    if isinstance(error, click.ClickException):
        return error.format_message()
    if exit_code(error) == exit_codes.INTERRUPTED:
        return str(error) or "interrupted"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _is_unexpected(error: BaseException) -> bool:
    return not isinstance(error, (FlowError, click.ClickException)) and exit_code(error) == exit_codes.RUN_FAILED


def _next_after_usage(error: BaseException) -> str:
    return f"{error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""


def _traceback(error: BaseException) -> str:
    return mask("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())
