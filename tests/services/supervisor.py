"""The supervisor: one small process per server, which starts it, waits for the test run to end, and stops it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.services import kafka, kinesis, mysql, object_stores, postgres, pubsub, rabbitmq, registry
from tests.services.server import Server, ServiceFailed, ServiceMissing

STARTERS: dict[str, Callable[[Path], Server]] = {
    "postgres": postgres.start,
    "mariadb": mysql.start_mariadb,
    "mysql8": mysql.start_mysql8,
    "kafka": kafka.start,
    "registry": registry.start,
    "rabbitmq": rabbitmq.start,
    "pubsub": pubsub.start,
    "kinesis": kinesis.start,
    "s3": object_stores.start_s3,
    "azure": object_stores.start_azure,
    "gcs": object_stores.start_gcs,
}


def keep(kind: str, *, record: Path, owner: int) -> None:
    """Start a server, write its address into `record`, and end it when `owner` is gone or SIGTERM arrives."""
    with _EndOf(owner) as owner_end:
        folder = Path(tempfile.mkdtemp(prefix=f"flow-{kind}-"))
        try:
            server = STARTERS[kind](folder)
        except (ServiceMissing, ServiceFailed, OSError, subprocess.SubprocessError) as error:
            _write(record, {"missing": isinstance(error, ServiceMissing), "error": str(error)})
            shutil.rmtree(folder, ignore_errors=True)
            return
        try:
            _write(record, {"url": server.url, "supervisor": os.getpid()})
            owner_end.wait()
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)
            record.unlink(missing_ok=True)
            if not owner_end.is_pending():
                shutil.rmtree(record.parent, ignore_errors=True)


class _EndOf:
    """Waits for another process, or for a signal to this one, without asking again and again."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._signalled, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def __enter__(self) -> _EndOf:
        signal.set_wakeup_fd(self._writer)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)

    def wait(self) -> None:
        """Return when the other process has ended, or a signal came."""
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(self._pid), self._signalled], [], [])

    def is_pending(self) -> bool:
        """Whether the other process still lives."""
        try:
            ended, _, _ = select.select([os.pidfd_open(self._pid)], [], [], 0)
        except ProcessLookupError:
            return False
        return not ended


def _write(record: Path, facts: dict[str, object]) -> None:
    """Readers see the whole record or none."""
    draft = record.with_suffix(".draft")
    draft.write_text(json.dumps(facts), encoding="utf-8")
    draft.replace(record)
