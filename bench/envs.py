"""Peers live in environments of their own, made once from a pinned list of packages."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from bench.model import Unavailable
from bench.place import FOLDER

PEERS = FOLDER / "peers"


def programs(name: str, *, cache: Path) -> Path:
    """The folder with an environment's programs; no name means: the environment this runs in."""
    if not name:
        return Path(sys.executable).parent
    home = cache / "envs" / name
    wanted = f"{_sum_of(name)} {sys.version_info[0]}.{sys.version_info[1]}\n"
    stamp = home / "bench.stamp"
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
        _make(name, home)
        stamp.write_text(wanted, encoding="utf-8")
    return home / "bin"


def version(name: str) -> str:
    """The package that the environment is named for, as pinned; empty for the project's own."""
    if not name:
        return ""
    first = _list_of(name).read_text(encoding="utf-8").splitlines()[0]
    package, _, number = first.partition("==")
    return f"{package.partition('[')[0]} {number}"


def _list_of(name: str) -> Path:
    return PEERS / name / "requirements.txt"


def _sum_of(name: str) -> str:
    return hashlib.sha256(_list_of(name).read_bytes()).hexdigest()


def _make(name: str, home: Path) -> None:
    print(f"  making the environment of {name}", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(home)], name)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    _run([*pip, "--quiet", "--only-binary=:all:", "-r", str(_list_of(name))], name)


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise Unavailable(f"the environment of {name} could not be made: {' '.join(last)}")
