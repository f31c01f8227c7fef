"""Facts about the machine and the versions that took part."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from bench.model import PRODUCT, SAIL, TENTH, WARM
from bench.place import ROOT


class Machine:
    """Asked once per invocation."""

    def facts(self) -> dict[str, str]:
        """What the page says about the machine."""
        return {
            "cpu": self._cpu,
            "cores": str(len(os.sched_getaffinity(0))),
            "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
            "system": self._system,
            "python": platform.python_version(),
            "java": self._java,
        }

    def version_of(self, contestant: str) -> str:
        """The version of who runs in the project's own environment."""
        if contestant in (PRODUCT, WARM, TENTH):
            return f"{version('ematix-flow-spark')} ({self._commit})" if self._commit else version("ematix-flow-spark")
        return f"pysail {version('pysail')}" if contestant == SAIL else f"pyspark {version('pyspark')}"

    @cached_property
    def _cpu(self) -> str:
        found = re.search(r"model name\s*:\s*(.+)", _text("/proc/cpuinfo"))
        return found[1].strip() if found else platform.machine()

    @cached_property
    def _system(self) -> str:
        found = re.search(r'PRETTY_NAME="(.+)"', _text("/etc/os-release"))
        return found[1] if found else platform.system()

    @cached_property
    def _java(self) -> str:
        from ematix_flow.engine.session.java import find_java

        said = subprocess.run([str(find_java()), "-version"], capture_output=True, text=True, check=False).stderr
        found = re.search(r'version "([^"]+)"', said)
        return found[1] if found else "unknown"

    @cached_property
    def _commit(self) -> str:
        command = ["git", "describe", "--always", "--dirty=, changed", "--exclude=*"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
