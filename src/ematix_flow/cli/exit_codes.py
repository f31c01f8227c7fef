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
    OK: "all went well",
    RUN_FAILED: "a run failed",
    USAGE: "the command line is wrong, or names something that is not there",
    VALIDATION: "a declaration, a statement or a table is not right; nothing was run",
    DATA: "rows break the table's promise or its checks; nothing was loaded",
    CONNECTION: "a connection, a secret or a configuration file is not right",
    LEASE: "another run of the pipeline is alive",
    BRAKE: "the load would delete too much and stopped",
    PARTIAL: "some succeeded and some failed",
    INTERRUPTED: "interrupted",
}
