"""Opens the run log that the command line names."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from ematix_flow.cli.render.output import Output
from ematix_flow.foundation.errors import ConnectionFailed, StorageFull
from ematix_flow.foundation.redact import mask
from ematix_flow.run_log.default import default_address
from ematix_flow.run_log.memory import InMemoryRunLog
from ematix_flow.run_log.protocol import RunLog
from ematix_flow.run_log.urls import file_of, from_url


@dataclass(frozen=True)
class RunLogOptions:
    """The run log options of a command; without them the environment and the default apply."""

    url: str | None = None
    path: str | None = None
    off: bool = False

    @property
    def address(self) -> str:
        """The address of the run log."""
        return self.url or self.path or default_address()

    @property
    def option(self) -> str:
        """The option that selects the same run log in another command; empty for the default run log."""
        if self.url:
            return f" --run-log {shlex.quote(mask(self.url))}"
        return f" --run-log-path {shlex.quote(self.path)}" if self.path else ""

    def for_writing(self, output: Output) -> RunLog | None:
        """Return the run log; None, with a warning, when it cannot be opened: a run goes on without its history."""
        if self.off:
            return None
        try:
            return from_url(self.address)
        except (ConnectionFailed, StorageFull) as error:  # outages; an address that can never work is an error
            output.warn(f"{error.what}; continuing without history")
            return None

    @contextmanager
    def writing(self, output: Output) -> Iterator[RunLog | None]:
        """Yield the run log as `for_writing` does, and close it."""
        run_log = self.for_writing(output)
        try:
            yield run_log
        finally:
            if run_log is not None:
                run_log.close()

    def for_planning(self) -> RunLog:
        """Return the run log; raise UsageError if it is turned off, because the interval ledger is needed."""
        if self.off:
            raise click.UsageError("this needs the run log: its ledger knows which windows are loaded")
        return from_url(self.address)

    def for_changing(self) -> RunLog:
        """Return the run log for a command that changes it; raise UsageError if it is turned off."""
        if self.off:
            raise click.UsageError("this is about the run log")
        return from_url(self.address)

    def for_reading(self) -> RunLog:
        """Return the run log; an empty one if it is off or its file does not exist, which reading must not create."""
        path = None if self.off else file_of(self.address)
        if self.off or (path is not None and not path.exists()):
            return InMemoryRunLog()
        return from_url(self.address)

    def display(self) -> str:
        """Return the address without secrets."""
        return "no run log" if self.off else mask(self.address)
