"""Files in the user's engine folder: a record per engine, a lock shared by its clients, and a lock for starting it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from ematix_flow.engine.session.java import find_java
from ematix_flow.foundation.processes import is_stopped, memory_bytes
from ematix_flow.foundation.warm_engine import build_identity, engine_folder
from ematix_flow.run_log.worker import is_dead, this_worker
from ematix_flow.storage.file_locks import try_lock

PATIENCE_SECONDS = 0.8
_MOST_PATIENT = 10
READY_MODULE = "ematix_flow.cli.running.fork_server"
"""The module of the fork server, which an engine runs as a separate process and which executes commands."""
START_LOCK_VARIABLE = "EMATIX_FLOW_ENGINE_START_LOCK"
_SETTINGS = b"\x04"  # the type of the first frame that either side of HTTP/2 sends
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00" + _SETTINGS + b"\x00\x00\x00\x00\x00"
# Variables that a JVM or its Python workers read from the environment they were started in.
_VARIABLES = ("SPARK_", "PYSPARK_", "HADOOP_", "JAVA_", "JDK_", "_JAVA_", "AWS_", "AZURE_", "GOOGLE_", "LD_",
              "TZ", "EMATIX_FLOW_DRIVER_MEMORY", "EMATIX_FLOW_CLASS_ARCHIVE")  # fmt: skip
# Set by this package, by pyspark or by the interpreter while a session is started or joined.
_INCIDENTAL = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_IP", "SPARK_LAUNCHER_OPTS", "SPARK_ENV_LOADED", "JAVA_HOME",
               "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONNECT_AUTHENTICATE_TOKEN", "SPARK_AUTH_SOCKET_TIMEOUT",
               "SPARK_BUFFER_SIZE")  # fmt: skip
_LEFTOVER_SECONDS = 86400.0


@dataclass(frozen=True)
class WarmEngine:
    """One engine: its process, its port and token, the jar sets on its class path, and the identity of its clients."""

    worker: str
    port: int
    token: str
    jars: tuple[str, ...]
    identity: str
    started_at: float
    idle_seconds: float
    heap: str
    owner: str
    file: str

    @property
    def pid(self) -> int:
        """Return the process id."""
        return int(self.worker.split(":")[1])

    @property
    def is_alive(self) -> bool:
        """Return whether the process exists and its port answers in HTTP/2, as Spark Connect does, before a timeout."""
        return not is_dead(self.worker) and not is_stopped(self.pid) and _answers(self.port)

    @property
    def users_file(self) -> Path:
        """Return the file on which clients hold a shared lock."""
        return Path(self.file).with_suffix(".users")

    @property
    def last_used(self) -> float:
        """Return the time at which the engine last recorded that a client held the lock."""
        with contextlib.suppress(OSError):
            return max(self.started_at, self.users_file.stat().st_mtime)
        return self.started_at

    def to_dict(self) -> dict[str, object]:
        """Return the fields for display: everything but the token."""
        return {
            "pid": self.pid,
            "port": self.port,
            "jars": list(self.jars),
            "alive": self.is_alive,
            "in_use": not is_unused(self),
            "memory_bytes": memory_bytes(self.pid),
            "heap_limit": self.heap,
            "up_seconds": max(0, round(time.time() - self.started_at)),  # a clock may be set back
            "idle_seconds": max(0, round(time.time() - self.last_used)),
            "ends_after_idle_seconds": self.idle_seconds,
        }


def engines() -> list[WarmEngine]:
    """Return every engine of this user on this machine that has a record, running or not."""
    return _read_all("*.json")


def retired_engines() -> list[WarmEngine]:
    """Return the engines that were taken out of the list because they did not answer."""
    return _read_all("*.retired")


def _read_all(pattern: str) -> list[WarmEngine]:
    here, read_engines = _host_of(this_worker()), []
    for file in sorted(engine_folder().glob(pattern)):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if hasattr(os, "getuid") and file.stat().st_uid != os.getuid():
                continue  # another user's engine: this user may use neither its token nor its process
            engine = read_engine(file)
            if _host_of(engine.worker) == here:  # several machines or containers may share one home
                read_engines.append(engine)
    return read_engines


def _host_of(worker: str) -> str:
    return worker.split(":")[0]


def read_engine(file: Path) -> WarmEngine:
    """Read the record of one engine; raise OSError, ValueError, TypeError or KeyError for an incomplete one."""
    kept = json.loads(file.read_text(encoding="utf-8"))
    return WarmEngine(**{**kept, "jars": tuple(kept["jars"]), "file": str(file)})


def write_engine(engine: WarmEngine) -> None:
    """Write the record of an engine, readable by this user only."""
    file = Path(engine.file)
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump({name: value for name, value in asdict(engine).items() if name != "file"}, out)
    part.replace(file)


def identity(settings: Mapping[str, str]) -> str:
    """Return a digest of everything that an engine and its clients must have in common.

    That is the interpreter, the files of this package, Spark, Java, the user's Spark settings, and the variables that a
    JVM or a Python worker inherits. Functions are exchanged as pickles, so both sides must be of one build. Raise
    RunFailed where there is no Java that runs this Spark.
    """
    from importlib.metadata import version

    inherited = {
        name: value for name, value in os.environ.items() if name.startswith(_VARIABLES) and name not in _INCIDENTAL
    }
    parts = [
        build_identity(),
        version("pyspark"),
        str(find_java()),
        sorted(settings.items()),
        sorted(inherited.items()),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def name_of(identity: str, jars: Iterable[str]) -> str:
    """Return the common name of engines that are interchangeable."""
    return hashlib.sha256(f"{identity}|{','.join(sorted(jars))}".encode()).hexdigest()[:12]


def make_folder() -> Path:
    """Create the engine folder for this user only, and return it; raise OSError where that is not possible."""
    folder = engine_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


@contextlib.contextmanager
def lock_for_block(file: Path) -> Iterator[IO[bytes] | None]:
    """Yield the file locked for the block, None if the lock is taken; it ends with the last process that holds it."""
    held = take_lock(file)
    with held or contextlib.nullcontext():
        yield held


def take_lock(file: Path, *, shared: bool = False) -> IO[bytes] | None:
    """Return a file of this folder locked without waiting, None when another lock conflicts."""
    while (held := try_lock(file, shared=shared, mode=0o600)) is not None and not _is_still(file, held):
        held.close()  # removed between the two calls: a lock on it excludes no other process
    return held


def _is_still(file: Path, opened: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.stat(file), os.fstat(opened.fileno()))
    except FileNotFoundError:
        return False


def write_starting(held: IO[bytes], worker: str) -> None:
    """Write the process that is being started into the start lock file."""
    with contextlib.suppress(OSError):  # full disk: other processes wait without checking for suspension
        held.truncate(0)
        held.write(worker.encode())
        held.flush()


def read_starting(file: Path) -> str | None:
    """Return the process that is being started under this lock; None if it is unknown or on another machine."""
    with contextlib.suppress(OSError):
        worker = file.read_text(encoding="utf-8", errors="replace")
        return worker if worker.count(":") == 2 and _host_of(worker) == _host_of(this_worker()) else None
    return None


def register_user(engine: WarmEngine) -> IO[bytes] | None:
    """Return a lock that registers this process as a client until closed; None when the engine is about to end."""
    if not Path(engine.file).exists():
        return None
    for _ in range(20):
        held = take_lock(engine.users_file, shared=True)
        if held is not None:
            if Path(engine.file).exists():  # else the engine ended before the lock was taken
                return held
            if not Path(engine.file).with_suffix(".retired").exists():  # a retired engine still checks for clients
                engine.users_file.unlink(missing_ok=True)
            held.close()
            return None
        time.sleep(0.005)  # the engine itself briefly takes this lock twice a second to check for clients
    return None


def is_unused(engine: WarmEngine) -> bool:
    """Return whether no process holds the clients' lock."""
    if not engine.users_file.exists():
        return True
    with lock_for_block(engine.users_file) as held:
        return held is not None


def retire_engine(engine: WarmEngine) -> None:
    """Take an unresponsive engine out of the list; it ends itself as soon as it can and has no clients."""
    with contextlib.suppress(OSError):
        Path(engine.file).replace(Path(engine.file).with_suffix(".retired"))


def remove_dead_engines() -> None:
    """Remove the files of engines that have ended, and files that an interrupted start left over a day ago."""
    for engine in (*engines(), *retired_engines()):
        if is_dead(engine.worker):
            remove_engine(engine)
    for file in engine_folder().glob("*"):
        with contextlib.suppress(OSError):
            if file.suffix in (".json", ".retired") or not _is_left_over(file):
                continue
            held = take_lock(file) if file.suffix in (".start", ".users") else None
            if held is not None or file.suffix not in (".start", ".users"):  # else a start is in progress
                file.unlink()
            if held is not None:
                held.close()


def remove_engine(engine: WarmEngine, *, keep_log: bool = True) -> None:
    """Remove the files of one engine; its log stays for a day unless `keep_log` is False."""
    for ending in (".json", ".retired", ".users", ".sock", *(() if keep_log else (".log",))):
        with contextlib.suppress(OSError):
            Path(engine.file).with_suffix(ending).unlink(missing_ok=True)


def _is_left_over(file: Path) -> bool:
    """Return whether a file is a day old and belongs to no engine."""
    is_of_an_engine = any(file.with_suffix(ending).exists() for ending in (".json", ".retired"))
    return not is_of_an_engine and time.time() - file.stat().st_mtime > _LEFTOVER_SECONDS


def answer_timeout() -> float:
    """Return the timeout in seconds for an answer, longer where more processes are runnable than there are cores."""
    try:
        waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        waiting = 1.0
    return PATIENCE_SECONDS * min(max(1.0, waiting), _MOST_PATIENT)


def _answers(port: int) -> bool:
    seconds = answer_timeout()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
            connection.settimeout(seconds)
            connection.sendall(_GREETING)
            return connection.recv(9)[3:4] == _SETTINGS
    except OSError:
        return False
