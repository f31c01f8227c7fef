"""Workers: a process is known by host, number and start."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from ematix_flow.run_log.worker import is_dead, this_worker


def test_this_process_is_alive_and_has_three_parts() -> None:
    host, pid, started = this_worker().rsplit(":", 2)
    assert host.startswith(socket.gethostname())
    assert pid == str(os.getpid())
    assert started.isdigit()
    assert not is_dead(this_worker())


def test_a_process_that_has_ended_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert is_dead(f"{socket.gethostname()}:{child.pid}:1")


def test_a_process_that_has_ended_and_was_not_yet_noticed_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    deadline = time.monotonic() + 20
    while not is_dead(f"{socket.gethostname()}:{child.pid}:0") and time.monotonic() < deadline:
        time.sleep(0.05)
    dead_before_anybody_waited = is_dead(f"{socket.gethostname()}:{child.pid}:0")
    child.wait()
    assert dead_before_anybody_waited


def test_the_same_number_with_another_start_is_another_process() -> None:
    host, pid, started = this_worker().rsplit(":", 2)
    assert is_dead(f"{host}:{pid}:{int(started) + 1}")
    assert not is_dead(f"{host}:{pid}:0")


def test_nothing_is_known_of_other_machines_containers_and_names_of_another_form() -> None:
    assert not is_dead("another-host:999999999:1")
    assert not is_dead(f"{socket.gethostname()}/4026532999:999999999:1")
    assert not is_dead("worker-7")
    assert not is_dead("")
