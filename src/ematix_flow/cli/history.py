"""Opens the run log that the command line asks for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import click

from ematix_flow.cli.output import Output
from ematix_flow.foundation.errors import ConnectionFailed, StorageFull
from ematix_flow.foundation.redact import mask
from ematix_flow.runlog.default import default_address
from ematix_flow.runlog.memory import InMemoryRunLog
from ematix_flow.runlog.protocol import RunLog
from ematix_flow.runlog.urls import file_of, from_url


@dataclass(frozen=True)
class RunLogChoice:
    """What the options say; the environment and the default come after them."""

    url: str | None = None
    path: str | None = None
    off: bool = False

    @property
    def address(self) -> str:
        """Where the run log is."""
        return self.url or self.path or default_address()

    @property
    def option(self) -> str:
        """The option that leads another command to the same run log; empty when it finds it by itself."""
        if self.url:
            return f" --run-log {shlex.quote(mask(self.url))}"
        return f" --run-log-path {shlex.quote(self.path)}" if self.path else ""

    def for_writing(self, output: Output) -> RunLog | None:
        """The run log, or None with a warning when it cannot be opened: the work matters more than its history."""
        if self.off:
            return None
        try:
            return from_url(self.address)
        except (
            ConnectionFailed,
            StorageFull,
        ) as error:  # an address that can never work is an error, this is a bad day
            output.warn(f"{error.what}; continuing without history")
            return None

    def for_planning(self) -> RunLog:
        """The run log, which the work cannot do without."""
        if self.off:
            raise click.UsageError("this needs the run log: its ledger knows which windows are loaded")
        return from_url(self.address)

    def for_changing(self) -> RunLog:
        """The run log, which this command is about; an error when it cannot be opened."""
        if self.off:
            raise click.UsageError("this is about the run log", ctx=click.get_current_context(silent=True))
        return from_url(self.address)

    def for_reading(self) -> RunLog:
        """The run log; an empty one when its file is not there, which reading must not make."""
        path = None if self.off else file_of(self.address)
        if self.off or (path is not None and not path.exists()):
            return InMemoryRunLog()
        return from_url(self.address)

    def shown(self) -> str:
        """The address for people."""
        return "no run log" if self.off else mask(self.address)
