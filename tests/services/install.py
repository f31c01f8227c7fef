"""Bring the servers to this machine: with apt-get where that is ours to do, else with a sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.services import kubernetes, mysql, postgres, rabbitmq, telemetry
from tests.services.built import RECIPES, build
from tests.services.server import ServiceMissing

_POLICY = Path("/usr/sbin/policy-rc.d")
# From Debian 13 and Ubuntu 24.04 on, the library has another package name.
_OTHER_NAMES = {"libaio1": "libaio1t64"}


def install() -> int:
    """Install what is missing; 0 when every server can start."""
    missing = missing_packages()
    if missing and not (os.geteuid() == 0 and shutil.which("apt-get")):
        sys.stderr.write(f"the tests need more of this machine; run: sudo apt-get install {' '.join(missing)}\n")
        return 1
    if missing:
        print(f"  installing {', '.join(missing)} with apt-get", flush=True)
        if not _apt_install(missing):
            return 1
    still = missing_packages()
    if still:
        sys.stderr.write(f"after the installation these are still missing: {', '.join(still)}\n")
        return 1
    return _fetch_jars()


def missing_packages() -> list[str]:
    """The distribution's packages that the servers need and this machine lacks."""
    packages = []
    if _is_missing(postgres.program_folder):
        packages.append("postgresql")
    if _is_missing(mysql.mariadb_programs):
        packages.append("mariadb-server")
    if _is_missing(rabbitmq.program):
        packages.append("rabbitmq-server")
    if _is_missing(telemetry.prometheus_program):
        packages.append("prometheus")
    return packages + mysql.missing_libraries()


def _is_missing(look: Callable[[], object]) -> bool:
    try:
        look()
    except ServiceMissing:
        return True
    return False


def _apt_install(packages: list[str]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], environment)
    known = [_known_name(package) for package in packages]
    with _no_autostart():
        return _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *known], environment)


def _known_name(package: str) -> str:
    other = _OTHER_NAMES.get(package)
    if other is None:
        return package
    shown = subprocess.run(["apt-cache", "show", other], capture_output=True, check=False)
    return other if shown.returncode == 0 and shown.stdout else package


@contextlib.contextmanager
def _no_autostart() -> Iterator[None]:
    """The tests start servers of their own: the packages shall not start one for the whole machine."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


def _run(command: list[str], environment: dict[str, str]) -> bool:
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        sys.stderr.write(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.returncode == 0


def _fetch_jars() -> int:
    """Servers that come as jars: MySQL 8.0, and Kafka's broker."""
    from ematix_flow.engine.session import jars
    from ematix_flow.foundation.errors import FlowError

    try:
        jars.ensure_jars(
            jars.read_lock(mysql.LOCK),
            lock=mysql.LOCK,
            on_progress=lambda line: print(f"  servers: {line}", flush=True),
        )
    except FlowError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def build_servers() -> int:
    """Build what is not to be had ready-made; minutes each, once."""
    for recipe in (*RECIPES.values(), telemetry.OTELCOL, kubernetes.KUBERNETES):
        try:
            build(recipe)
        except ServiceMissing as missing:
            sys.stderr.write(f"{missing}\n")
            return 1
    return 0
