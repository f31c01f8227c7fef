"""The package as a user installs it: a wheel, in an environment of its own that has what the wheel asks for and nothing else.

No index is needed: the packages that the wheel's own metadata asks for, and those that these ask for, are linked from the
environment of the tests. One that is missing in the metadata is therefore missing here as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
NAME = "ematix-flow-spark"


def build(folder: Path) -> tuple[Path, Path]:
    """Return a wheel and a source distribution, built into the folder."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "wheel", "-t", "sdist"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


class Environment:
    """An environment with the wheel and some of its extras."""

    def __init__(self, folder: Path, wheel: Path, *extras: str) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
        self.bin = folder / "env" / "bin"
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-index"]
        subprocess.run([*uv, "--python", str(self.bin / "python"), str(wheel)], check=True, cwd=folder)
        (self.site,) = (folder / "env" / "lib").glob("python*/site-packages")
        (own,) = self.site.glob("ematix_flow_spark-*.dist-info")
        for package in closure(PathDistribution(own), extras):
            link(package, self.site)

    @property
    def variables(self) -> dict[str, str]:
        """A home of its own, the jars of the test run, and nothing that points to the repository."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EMATIX_", "PYTHON", "PIP_"))}
        return {
            **kept,
            "HOME": str(self.folder),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "EMATIX_FLOW_ENGINE": "local",
            "EMATIX_FLOW_CACHE": os.environ["EMATIX_FLOW_CACHE"],
            "EMATIX_FLOW_CLASS_ARCHIVE": "off",  # one for these paths is used by no other test
        }

    def flow(self, *words: str, inside: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run `flow` as a user does, by its script."""
        return subprocess.run(
            [str(self.bin / "flow"), *words], cwd=inside or self.folder, env=self.variables, capture_output=True, text=True,
            check=False, timeout=500,
        )  # fmt: skip


def closure(package: Distribution, extras: Iterable[str]) -> Iterator[Distribution]:
    """Yield what the package needs with these extras, directly and by others; its own extras may name each other."""
    waiting: list[tuple[Distribution, str]] = [(package, extra) for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asking, extra = waiting.pop()
        for text in asking.requires or []:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            found = package if wanted.name == NAME else distribution(wanted.name)
            for key in ("", *wanted.extras):
                if (wanted.name, key) not in seen:
                    seen.add((wanted.name, key))
                    waiting.append((found, key))
                    if found is not package and key == "":
                        yield found


def link(package: Distribution, site: Path) -> None:
    """Put a package into an environment by links to its files' topmost folders."""
    for top in {file.parts[0] for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(package.locate_file(top))).resolve())
