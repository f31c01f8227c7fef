"""One test run: its servers are started by whichever worker asks first, and shared by all of them."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.services.built import RECIPES, product
from tests.services.server import Server, ServiceFailed, ServiceMissing

START_SECONDS = 180
STOP_SECONDS = 30
_FOLDER_VARIABLE = "EMATIX_FLOW_TEST_SERVICES"
_ROOT = Path(__file__).resolve().parents[2]


def start_postgres() -> Server:
    """The PostgreSQL of this run."""
    return _start("postgres")


def start_mariadb() -> Server:
    """The MariaDB of this run."""
    return _start("mariadb")


def start_mysql8() -> Server:
    """The MySQL 8.0 of this run."""
    return _start("mysql8")


def start_kafka() -> Server:
    """The Kafka of this run."""
    return _start("kafka")


def start_registry() -> Server:
    """The schema registry of this run."""
    return _start("registry")


def start_rabbitmq() -> Server:
    """The RabbitMQ of this run."""
    return _start("rabbitmq")


def start_pubsub() -> Server:
    """The Pub/Sub of this run."""
    return _start("pubsub")


def start_kinesis() -> Server:
    """The Kinesis of this run."""
    return _start("kinesis")


def start_s3() -> Server:
    """The S3 server of this run."""
    return _start("s3")


def start_azure() -> Server:
    """The Azure Blob Storage of this run."""
    return _start("azure")


def start_gcs() -> Server:
    """The Google Cloud Storage of this run."""
    return _start("gcs")


def open_session() -> None:
    """Make this process the owner of a run: its servers end with it, and child processes find them."""
    folder = Path(tempfile.mkdtemp(prefix="flow-services-"))
    (folder / "owner").write_text(str(os.getpid()), encoding="utf-8")
    os.environ[_FOLDER_VARIABLE] = str(folder)


def close_session() -> None:
    """Stop every server of this run."""
    folder = Path(os.environ.pop(_FOLDER_VARIABLE, ""))
    if not (folder / "owner").exists():
        return
    records = sorted(folder.glob("*.json"))
    for record in records:
        _signal_supervisor(record)
    for record in records:
        _wait_until_gone(record)
    shutil.rmtree(folder, ignore_errors=True)


def _start(kind: str) -> Server:
    if kind in RECIPES:
        product(RECIPES[kind])  # here, because a supervisor must answer sooner than a build may take
    if _FOLDER_VARIABLE not in os.environ:
        open_session()
        atexit.register(close_session)
    folder = Path(os.environ[_FOLDER_VARIABLE])
    record = folder / f"{kind}.json"
    with _locked(folder / f"{kind}.lock"):
        if not record.exists():
            _launch_supervisor(kind, record=record)
        facts = json.loads(record.read_text(encoding="utf-8"))
    if "error" in facts:
        raise (ServiceMissing if facts["missing"] else ServiceFailed)(facts["error"])
    return Server(url=facts["url"], stop=lambda: _stop(record))


def _launch_supervisor(kind: str, *, record: Path) -> None:
    """The supervisor is a session of its own: a key press or signal for the tests must not end the server before them."""
    owner = (record.parent / "owner").read_text(encoding="utf-8")
    log = record.with_suffix(".log")
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.services", "keep", kind, str(record), owner],
            cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    while not record.exists():
        if supervisor.poll() is not None and not record.exists():
            raise ServiceFailed(f"{kind} did not start:\n{log.read_text(encoding='utf-8', errors='replace')[-3000:]}")
        if time.monotonic() > deadline:
            supervisor.terminate()
            raise ServiceFailed(f"{kind} did not start within {START_SECONDS} s")
        time.sleep(0.05)


def _stop(record: Path) -> None:
    _signal_supervisor(record)
    _wait_until_gone(record)


def _signal_supervisor(record: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        supervisor = json.loads(record.read_text(encoding="utf-8")).get("supervisor")
        if supervisor is not None:
            os.kill(supervisor, signal.SIGTERM)
        else:
            record.unlink()


def _wait_until_gone(record: Path) -> None:
    """The record is the last thing a supervisor takes away."""
    deadline = time.monotonic() + STOP_SECONDS
    while record.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
