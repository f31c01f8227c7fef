"""The process that forks for each command: what its clients hear when it is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ematix_flow.cli.running.fork_client import receive_message, send_message

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are handed over on Linux only")

# Every command waits for ever: this is about those who wait for it.
SERVER = """
import os, signal, sys
from pathlib import Path
from ematix_flow.cli.running.fork_server import _ForkServer

command = _ForkServer(Path(sys.argv[1]), os.getppid(), {}).serve()
if command is not None:
    signal.pause()
"""
SECONDS = 20.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server whose commands never end."""
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path / "s")], start_new_session=True)
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ask(path: Path) -> socket.socket:
    """Hand a command over and return the connection, at whose end the client hears how the command ended."""
    asked = socket.socket(socket.AF_UNIX)
    asked.settimeout(SECONDS)
    asked.connect(str(path))
    send_message(asked, {"build": {}})
    assert receive_message(asked) == {"accepted": True}
    send_message(asked, {"go": True}, descriptors=(0, 1, 2))
    assert "pid" in (receive_message(asked) or {})
    return asked


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
            tried.connect(str(path))
            return
    raise AssertionError("the server ended")


def test_every_client_hears_at_once_that_the_server_is_gone(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    path = tmp_path / "s"
    wait_for(path, server)
    with ExitStack() as kept:
        clients = [kept.enter_context(ask(path)) for _ in range(3)]
        server.kill()
        server.wait()
        assert [receive_message(client) for client in clients] == [None, None, None]
