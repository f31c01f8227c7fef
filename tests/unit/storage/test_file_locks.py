"""Locks on files: exclusive or shared, waited for or refused, and released when they are closed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ematix_flow.foundation.errors import LeaseHeld, RunFailed
from ematix_flow.storage.file_locks import lock_file, locked_file, try_lock


def held_elsewhere() -> LeaseHeld:
    return LeaseHeld("another process has it")


def test_an_exclusive_lock_conflicts_with_every_other_one(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    held = try_lock(file)
    assert held is not None
    assert (try_lock(file), try_lock(file, shared=True)) == (None, None)
    held.close()
    first, second = try_lock(file, shared=True), try_lock(file, shared=True)
    assert first is not None
    assert second is not None
    assert try_lock(file) is None
    first.close()
    second.close()


def test_the_file_of_a_lock_gets_the_wanted_permissions(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "lock", mode=0o600)
    assert held is not None
    assert (tmp_path / "lock").stat().st_mode & 0o077 == 0
    held.close()


def test_a_lock_that_stays_held_is_refused_after_the_patience(tmp_path: Path) -> None:
    file = tmp_path / "new" / "lock"
    with lock_file(file, held_elsewhere), pytest.raises(LeaseHeld, match="another process has it"):
        lock_file(file, held_elsewhere, seconds=0.1)
    lock_file(file, held_elsewhere).close()


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    file, entered = tmp_path / "lock", threading.Event()

    def work() -> None:
        with locked_file(file):
            entered.set()

    thread = threading.Thread(target=work)
    with locked_file(file):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match="file"), locked_file(tmp_path / "file" / "lock"):
        pass
