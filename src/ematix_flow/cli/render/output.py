"""The output of a command: data to stdout, messages to stderr, always without secrets."""

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
    """The output settings of one command invocation, and the methods that write."""

    def __init__(self) -> None:
        self.json = os.environ.get("FLOW_OUTPUT", "").lower() == "json"
        self.verbose = False
        self.progress = True
        self.reader_left = False
        self.colored = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def on_terminal(self) -> bool:
        """Whether stdout and stderr are terminals and this is not a CI job."""
        return sys.stdout.isatty() and sys.stderr.isatty() and not os.environ.get("CI")

    def data(self, text: str) -> None:
        """Write the requested data to stdout."""
        self._write(mask(text))

    def info(self, text: str) -> None:
        """Write a message to stderr; nothing with --json."""
        if not self.json:
            click.echo(mask(text), err=True)

    def warn(self, text: str) -> None:
        """Write a warning to stderr, with --json as well."""
        click.echo(f"{self.paint('warning:', 'yellow', err=True)} {mask(text)}", err=True)

    def document(self, value: object) -> None:
        """Write one JSON document to stdout."""
        self._write(json_module.dumps(masked_value(value), indent=2, ensure_ascii=False, default=str))

    def result(self, document: object, text: str) -> None:
        """Write the document with --json, else the text."""
        if self.json:
            self.document(document)
        else:
            self.data(text)

    def listing(self, document: object, rows: Sequence[Sequence[str]], *, header: Sequence[str] = (),
                empty: str = "") -> None:  # fmt: skip
        """Write the document with --json, else the rows as a table, or a message to stderr where there are none."""
        if self.json:
            self.document(document)
        elif rows:
            self.table(rows, header=header)
        else:
            self.info(empty)

    def table(self, rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> None:
        """Write rows in aligned columns."""
        for line in aligned_rows(rows, header=header):
            self.data(line)

    def paint(self, text: str, color: str, *, err: bool = False) -> str:
        """Return the text in a colour if the stream is a terminal and colours are on."""
        stream = sys.stderr if err else sys.stdout
        return click.style(text, fg=color) if self.colored and stream.isatty() else text

    def _write(self, text: str) -> None:
        """Write to stdout; when its reader has closed the pipe, discard further output so that the work can go on."""
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


def labelled_lines(facts: Iterable[tuple[str, str]], *, width: int) -> list[str]:
    """Return a line for each fact that has a text, with its name in a column of this width.

    >>> labelled_lines([("run", "0b6c8a52"), ("error", ""), ("hint", "one\\ntwo")], width=6)
    ['run   0b6c8a52', 'hint  one\\n      two']
    """
    return [f"{name:<{width}}{text}".replace("\n", "\n" + " " * width) for name, text in facts if text]


def masked_value(value: Any) -> Any:
    """Return the value with every text in it masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {str(key): masked_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [masked_value(inner) for inner in value]
    return value


def aligned_rows(rows: Iterable[Sequence[str]], *, header: Sequence[str] = ()) -> list[str]:
    """Return the rows as lines with aligned columns.

    >>> aligned_rows([("a", "bb"), ("ccc", "d")])
    ['a    bb', 'ccc  d']
    """
    lines = [tuple(header), *map(tuple, rows)] if header else [tuple(row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
