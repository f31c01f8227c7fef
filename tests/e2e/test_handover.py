"""Commands that are handed over to a process with everything imported: the same answers, codes, streams and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="commands are handed over on Linux only; run it there")

PIPELINES = """
import os, pathlib, time
from ematix_flow.pipeline import register

@register(name="tells", schedule=None)
def tells():
    print("a word")
    parent = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text()
    return {"folder": os.getcwd(), "variable": os.environ.get("OF_THIS_CALL"), "is_forked": "fork_server" in parent}

@register(name="breaks", schedule=None)
def breaks():
    raise ConnectionError("nobody there")

@register(name="waits", schedule=None)
def waits():
    pathlib.Path("waiting").touch()
    time.sleep(60)
"""


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "engine").mkdir()
        (folder / "pipelines.py").write_text(PIPELINES)
        self.environment = {
            **os.environ,
            "EMATIX_FLOW_ENGINE": "auto",
            "EMATIX_FLOW_ENGINE_DIR": str(folder / "engine"),
            "EMATIX_FLOW_RUN_LOG_PATH": str(folder / "run_log.db"),
            "EMATIX_FLOW_LOGS_DIR": str(folder / "logs"),
        }

    def command(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "ematix_flow.cli", *words],
            cwd=self.folder,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def flow(self, *words: str, **more: str) -> tuple[int, str, str]:
        process = self.command(*words, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("handover"))
    listens = str(made.folder / "engine" / "warm.sock")
    ready = subprocess.Popen([sys.executable, "-m", "ematix_flow.cli.running.fork_server", listens, str(os.getpid())])
    until = time.monotonic() + 60
    while not (made.folder / "engine" / "warm.sock").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    yield made
    ready.terminate()
    assert ready.wait(10) == 0
    assert not (made.folder / "engine" / "warm.sock").exists()


def test_a_process_whose_engine_ended_while_it_started_ends_too(tmp_path: Path) -> None:
    """As an engine does that is killed while this process still imports."""
    script = (
        f"{sys.executable} -m ematix_flow.cli.running.fork_server {tmp_path}/late.sock $$ > /dev/null 2>&1 & echo $!"
    )
    pid = int(subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout)
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


def _document(out: str) -> dict[str, object]:
    (result,) = json.loads(out)["results"]
    found: dict[str, object] = result["result"]
    return found


def test_a_command_is_run_by_a_fork_as_if_it_were_run_here(shop: Shop) -> None:
    code, out, err = shop.flow("run", "tells", "--json", OF_THIS_CALL="yes")
    assert code == 0, err
    assert _document(out) == {"folder": str(shop.folder), "variable": "yes", "is_forked": True}
    assert "a word" in err
    here = _document(shop.flow("run", "tells", "--json", EMATIX_FLOW_ENGINE="local")[1])
    assert here == {"folder": str(shop.folder), "variable": None, "is_forked": False}


def test_exit_codes_and_errors_are_the_same(shop: Shop) -> None:
    forked, here = shop.flow("run", "breaks"), shop.flow("run", "breaks", EMATIX_FLOW_ENGINE="local")
    assert forked[0] == here[0] == 1
    assert "nobody there" in forked[2]
    assert shop.flow("run", "nothing")[0] == 2


def test_a_change_of_the_users_module_is_seen_at_once(shop: Shop) -> None:
    file = shop.folder / "pipelines.py"
    before = file.read_text()
    file.write_text(before.replace('print("a word")', 'print("another word")'))
    try:
        assert "another word" in shop.flow("run", "tells")[2]
    finally:
        file.write_text(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_run(shop: Shop, number: signal.Signals) -> None:
    (shop.folder / "waiting").unlink(missing_ok=True)
    process = shop.command("run", "waits")
    _wait_for(shop.folder / "waiting")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (130, 143)
    assert "Traceback" not in err


def test_a_run_ends_when_the_process_that_wanted_it_is_gone(shop: Shop) -> None:
    (shop.folder / "waiting").unlink(missing_ok=True)
    process = shop.command("run", "waits")
    _wait_for(shop.folder / "waiting")
    process.kill()
    process.wait()
    until = time.monotonic() + 20
    command = ["runs", "list", "-p", "waits", "--json"]
    while json.loads(shop.flow(*command)[1])["runs"][0]["status"] == "running":
        assert time.monotonic() < until
        time.sleep(0.2)
    assert json.loads(shop.flow(*command)[1])["runs"][0]["status"] == "cancelled"


def test_another_build_is_refused(shop: Shop) -> None:
    import socket

    from ematix_flow.cli.running import fork_client

    request = {**fork_client._request(["run", "tells"]), "build": {"python": "another"}}
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(str(shop.folder / "engine" / "warm.sock"))
        fork_client.send_message(asked, request)
        assert fork_client.receive_message(asked) == {"refused": "of another build"}


def test_nonsense_on_the_socket_does_no_harm(shop: Shop) -> None:
    import socket

    for words in (b"", b"\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{]"):
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(shop.folder / "engine" / "warm.sock"))
            asked.sendall(words)
    assert shop.flow("run", "tells")[0] == 0


def test_a_socket_without_a_listener_is_ignored(tmp_path: Path) -> None:
    import socket

    made = Shop(tmp_path)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "engine" / "dead.sock"))
    dead.close()
    code, out, err = made.flow("run", "tells", "--json")
    assert code == 0, err
    assert _document(out)["is_forked"] is False


def _wait_for(file: Path) -> None:
    until = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.05)
