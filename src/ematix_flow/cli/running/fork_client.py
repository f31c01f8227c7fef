"""Sends a command to the fork server of a warm engine, where one is running."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ematix_flow.foundation.warm_engine import build_identity, engine_folder

COMMANDS = ("run", "run-due", "preview", "validate", "dry-run", "backfill", "transform")
ENGINE_VARIABLE = "EMATIX_FLOW_ENGINE"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else ()
_SECONDS = 0.8  # an engine that does not answer delays a command by less than a second (more on a loaded machine)


def run_in_fork_server(arguments: Sequence[str]) -> int | None:
    """Run the command in a fork server; return its exit code, None if no server accepted it."""
    if sys.platform != "linux" or not arguments or arguments[0] not in COMMANDS:
        return None
    if os.environ.get(ENGINE_VARIABLE, "auto").strip() not in ("", "auto"):
        return None
    for path in _sockets():
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_answer_timeout())
            channel.connect(str(path))
            send_message(channel, _request(arguments))
            if "accepted" not in (receive_message(channel) or {}):
                continue
            # The server may run the command only after this message: a suspended server must neither run it later nor
            # hold these streams open.
            channel.settimeout(None)
            send_message(channel, {"go": True}, descriptors=(0, 1, 2))
            answer = receive_message(channel)
            if answer is not None and "pid" in answer:
                return _await_exit(channel, int(answer["pid"]))
    return None


def send_message(channel: socket.socket, message: dict[str, Any], *, descriptors: Sequence[int] = ()) -> None:
    """Send one message, with open file descriptors if any are given."""
    body = json.dumps(message).encode()
    if descriptors:
        socket.send_fds(channel, [struct.pack("!I", len(body))], list(descriptors))
        channel.sendall(body)
    else:
        channel.sendall(struct.pack("!I", len(body)) + body)


def receive_message(channel: socket.socket) -> dict[str, Any] | None:
    """Return one message without files; None when the other side has closed the connection."""
    head = _receive_exactly(channel, 4)
    body = _receive_exactly(channel, struct.unpack("!I", head)[0]) if head is not None else None
    return json.loads(body) if body is not None else None


def receive_message_with_files(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return one message and the files sent with it; None when the other side has closed the connection."""
    head, files, _, _ = socket.recv_fds(channel, 4, 3)
    body = _receive_exactly(channel, struct.unpack("!I", head)[0]) if len(head) == 4 else None
    if body is None:
        for file in files:
            os.close(file)
        return None
    return json.loads(body), files


def _request(arguments: Sequence[str]) -> dict[str, Any]:
    umask = os.umask(0)
    os.umask(umask)
    return {
        "arguments": list(arguments),
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "path": sys.path,
        "umask": umask,
        "build": build_identity(),
    }


def _await_exit(channel: socket.socket, pid: int) -> int:
    with _signals_forwarded(pid):
        answer = receive_message(channel)
    if answer is None:
        sys.stderr.write("the warm engine's process ended before this command; look: flow runs list\n")
        return 1
    return int(answer["exit"])


@contextmanager
def _signals_forwarded(pid: int) -> Iterator[None]:
    def forward(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sockets() -> list[Path]:
    """Return the sockets of this user's fork servers."""
    paths = []
    with suppress(OSError):
        paths = [path for path in sorted(engine_folder().glob("*.sock")) if path.stat().st_uid == os.getuid()]
    return paths


def _answer_timeout() -> float:
    """Return the timeout in seconds: 0.8, up to ten times as long on a machine with more load than cores."""
    with suppress(OSError):
        return _SECONDS * min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 10.0)
    return _SECONDS


def _receive_exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        chunk = channel.recv(size - len(parts))
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)
