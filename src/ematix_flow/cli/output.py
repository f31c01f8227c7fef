"""Where words go: data to stdout, talk to stderr, and never a secret."""

from __future__ import annotations

import json as json_module
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from ematix_flow.foundation.redact import MaskSecrets, mask


class Output:
    """How this invocation wants to be answered."""

    def __init__(self) -> None:
        self.json = os.environ.get("FLOW_OUTPUT", "").lower() == "json"
        self.verbose = False
        self.progress = True
        self.reader_left = False
        self.colored = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def on_terminal(self) -> bool:
        """Whether a person sits in front of both streams."""
        return sys.stdout.isatty() and sys.stderr.isatty() and not os.environ.get("CI")

    def data(self, text: str) -> None:
        """What was asked for."""
        self._write(mask(text))

    def talk(self, text: str) -> None:
        """What a person may like to know; silent in front of a program."""
        if not self.json:
            click.echo(mask(text), err=True)

    def warn(self, text: str) -> None:
        """What a person should know, whoever reads stdout."""
        click.echo(f"{self.paint('warning:', 'yellow', err=True)} {mask(text)}", err=True)

    def document(self, value: object) -> None:
        """One JSON document."""
        self._write(json_module.dumps(masked(value), indent=2, ensure_ascii=False, default=str))

    def table(self, rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> None:
        """Aligned columns."""
        for line in aligned(rows, header=header):
            self.data(line)

    def paint(self, text: str, color: str, *, err: bool = False) -> str:
        """The text in a colour, where colours are seen."""
        stream = sys.stderr if err else sys.stdout
        return click.style(text, fg=color) if self.colored and stream.isatty() else text

    def _write(self, text: str) -> None:
        """Write to stdout; work that has begun goes on when its reader leaves."""
        try:
            click.echo(text)
        except BrokenPipeError:
            self.reader_left = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def be_verbose(self) -> None:
        """Show log lines on stderr, without secrets."""
        self.verbose = True
        root = logging.getLogger("ematix_flow")
        if not root.handlers:
            handler = logging.StreamHandler()
            handler.addFilter(MaskSecrets())
            handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
            root.addHandler(handler)
        root.setLevel(logging.DEBUG)


def masked(value: Any) -> Any:
    """The same value with every text in it masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {str(key): masked(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [masked(inner) for inner in value]
    return value


def aligned(rows: Iterable[Sequence[str]], *, header: Sequence[str] = ()) -> list[str]:
    """Rows as lines whose columns stand below each other.

    >>> aligned([("a", "bb"), ("ccc", "d")])
    ['a    bb', 'ccc  d']
    """
    lines = [tuple(header), *map(tuple, rows)] if header else [tuple(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
