"""The exit codes of the command line and their meanings; they are a stable interface."""

from __future__ import annotations

OK = 0
RUN_FAILED = 1
USAGE = 2
VALIDATION = 3
DATA = 4
CONNECTION = 5
LEASE = 6
BRAKE = 7
PARTIAL = 8
INTERRUPTED = 130
BROKEN_PIPE = 141

MEANINGS: dict[int, str] = {
    OK: "success",
    RUN_FAILED: "a run failed",
    USAGE: "the command line is wrong, or refers to something that does not exist",
    VALIDATION: "a declaration, a statement or a table is invalid; nothing was run",
    DATA: "rows violate the table's constraints or its checks; nothing was loaded",
    CONNECTION: "a connection, a secret or a configuration file is invalid",
    LEASE: "another run of the pipeline is active",
    BRAKE: "the load was stopped because it would delete too many rows",
    PARTIAL: "some succeeded and some failed",
    INTERRUPTED: "interrupted",
    BROKEN_PIPE: "the reader of the output has ended, as in `flow list | head -1`",
}
