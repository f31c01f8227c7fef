"""The fork server of a warm engine: a process with everything imported, which forks for each command.

The engine starts it as `python -m ematix_flow.cli.running.fork_server SOCKET ENGINE_PID`, and it ends with the engine. It has one
thread and no connection to other systems, so that a fork works like a newly started process.
"""

from __future__ import annotations

import atexit
import importlib
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ematix_flow.backends.catalog import all_backends
from ematix_flow.cli.main import run_here
from ematix_flow.cli.running.fork_client import receive_message, receive_message_with_files, send_message
from ematix_flow.foundation.warm_engine import build_identity

_IMPORTED = (
    "pyarrow.compute", "pyarrow.parquet", "pandas", "sqlglot", "psycopg", "adbc_driver_postgresql.dbapi",
    "pyspark.sql.connect.session", "pyspark.sql.connect.functions", "pyspark.sql.types",
    "ematix_flow.engine.batch.pipeline_run", "ematix_flow.engine.batch.preview", "ematix_flow.observe.observers",
    "ematix_flow.cli.commands.run.run", "ematix_flow.cli.commands.build.inspection", "ematix_flow.cli.commands.run.run_due",
)  # fmt: skip
_LOOK = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_PEER = struct.Struct("3i")


def main(words: list[str]) -> int:
    """Serve until the engine has ended."""
    for name in _IMPORTED:
        with suppress(Exception):  # a package that is not installed is not needed
            importlib.import_module(name)
    with suppress(Exception):
        all_backends()
    path, engine = Path(words[0]), int(words[1])
    if os.getppid() != engine:  # the engine ended during the imports: no other process would end this one
        return 0
    command = _ForkServer(path, engine, build_identity()).serve()
    return _exit_fork(command()) if command is not None else 0


class _ForkServer:
    """A server that listens on a socket, forks for each request and sends the client its exit code."""

    def __init__(self, path: Path, parent: int, own: dict[str, object]) -> None:
        self._path = path
        self._parent = parent
        self._build = own
        self._clients: dict[int, socket.socket] = {}
        self._ended = False

    def serve(self) -> Callable[[], int] | None:
        """Serve requests. Returns None when the server has ended, and in a fork the command to run."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        listening.bind(str(self._path))
        os.umask(before)
        listening.listen(32)
        awake, wakes = socket.socketpair()
        for end in (awake, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)
        with selectors.DefaultSelector() as selector:
            selector.register(listening, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            while self._clients or not self._is_over():
                if self._is_over() and listening.fileno() >= 0:  # commands under way run to their end
                    selector.unregister(listening)
                    listening.close()
                    self._path.unlink(missing_ok=True)
                for key, _ in selector.select(_LOOK):
                    if key.fileobj is awake:
                        with suppress(BlockingIOError):
                            awake.recv(4096)
                    elif key.fileobj is listening:
                        command = self._accept(listening, selector)
                        if command is not None:
                            for end in (listening, awake, wakes):
                                end.close()
                            return command
                    else:
                        self._client_gone(key.fileobj, selector)
                self._reap(selector)
        listening.close()
        self._path.unlink(missing_ok=True)
        return None

    def _is_over(self) -> bool:
        return self._ended or os.getppid() != self._parent

    def _on_signal(self, number: int, _frame: object) -> None:
        self._ended = self._ended or number != signal.SIGCHLD

    def _accept(self, listening: socket.socket, selector: selectors.BaseSelector) -> Callable[[], int] | None:
        client, _ = listening.accept()
        client.settimeout(2)
        try:
            request = receive_message(client) if _is_of_this_user(client) else None
        except (OSError, ValueError):
            request = None
        if request is None:
            client.close()
            return None
        if request.get("build") != self._build or self._is_over():
            with suppress(OSError):
                send_message(client, {"refused": "of another build"})
            client.close()
            return None
        files = _accept_streams(client)
        if files is None:
            client.close()
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            client.close()
            return lambda: _run_request(request, files)
        self._clients[pid] = client
        selector.register(client, selectors.EVENT_READ)
        with suppress(OSError):
            send_message(client, {"pid": pid})
        for file in files:
            os.close(file)
        return None

    def _client_gone(self, client: Any, selector: selectors.BaseSelector) -> None:
        """Terminate the command of a client that disconnected: clients send nothing after their request."""
        selector.unregister(client)
        for pid, known in self._clients.items():
            if known is client:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _reap(self, selector: selectors.BaseSelector) -> None:
        while self._clients:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            client = self._clients.pop(pid, None)
            if client is None:
                continue
            with suppress(KeyError, ValueError):
                selector.unregister(client)
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):
                send_message(client, {"exit": code if code >= 0 else 128 - code})
            client.close()


def _run_request(request: dict[str, Any], files: list[int]) -> int:
    """Run the command with the streams, folder, environment and path of the client."""
    os.setpgid(0, 0)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    _open_streams()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    time.tzset()
    os.umask(request["umask"])
    sys.path[:] = request["path"]
    sys.argv = ["flow", *request["arguments"]]
    return run_here(request["arguments"])


def _open_streams() -> None:
    """Open Python's standard streams as a new process with these files would."""
    encoding = sys.stdout.encoding
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        by_line = number == 2 or os.isatty(number)
        stream = open(number, "w", encoding=encoding, buffering=1 if by_line else -1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _exit_fork(code: int) -> int:
    """End a fork as multiprocessing does: run thread and exit callbacks, flush, exit without interpreter shutdown."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _accept_streams(client: socket.socket) -> list[int] | None:
    """Accept a command and return its three streams; None when the client has timed out and runs it by itself."""
    try:
        send_message(client, {"accepted": True})
        answer = receive_message_with_files(client)
    except (OSError, ValueError):
        return None
    if answer is None:
        return None
    word, files = answer
    if word.get("go") is True and len(files) == 3:
        return files
    for file in files:
        os.close(file)
    return None


def _is_of_this_user(client: socket.socket) -> bool:
    """Return whether the client runs as this user, according to the kernel."""
    _, user, _ = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.getuid())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
