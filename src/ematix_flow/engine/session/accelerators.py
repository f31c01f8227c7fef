"""Native Spark accelerators: detected on the class path by their plugin class, and enabled where they fit."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_OFF_HEAP = {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "{heap}"}
_FOR_SPARK = re.compile(r"spark(\d+\.\d+)")
_GRAPHICS_CARD = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class Accelerator:
    """A supported accelerator: part of its jar's name, its plugin class, its settings, and its device."""

    title: str
    named: str
    plugin: str
    needs: Mapping[str, str] = field(default_factory=dict)
    device: Path | None = None


@dataclass(frozen=True)
class InstalledAccelerator:
    """An accelerator on the class path; `obstacle` is the reason why it is not used."""

    accelerator: Accelerator
    jar: Path
    obstacle: str = ""

    def settings(self, heap: str) -> dict[str, str]:
        """Return its Spark settings for a heap of this size; empty where there is an obstacle."""
        if self.obstacle:
            return {}
        needs = {name: value.format(heap=heap) for name, value in self.accelerator.needs.items()}
        return {"spark.plugins": self.accelerator.plugin, **needs}

    def __str__(self) -> str:
        return f"{self.accelerator.title} ({self.jar.name})"


KNOWN = (
    Accelerator(
        "Apache DataFusion Comet", "comet-spark", "org.apache.spark.CometPlugin",
        {**_OFF_HEAP, "spark.shuffle.manager": "org.apache.spark.sql.comet.execution.shuffle.CometShuffleManager"},
    ),
    Accelerator(
        "Apache Gluten", "gluten", "org.apache.gluten.GlutenPlugin",
        {**_OFF_HEAP, "spark.shuffle.manager": "org.apache.spark.shuffle.sort.ColumnarShuffleManager"},
    ),
    Accelerator("RAPIDS", "rapids-4-spark", "com.nvidia.spark.SQLPlugin", device=_GRAPHICS_CARD),
)  # fmt: skip


def find_accelerator(class_path: Iterable[Path], *, spark: str) -> InstalledAccelerator | None:
    """Return the accelerator on this class path, preferably one that fits this Spark version; None without any."""
    candidates = [
        _check_compatibility(known, jar, spark) for jar in class_path for known in KNOWN if _contains_plugin(jar, known)
    ]
    return min(candidates, key=lambda item: bool(item.obstacle), default=None)


def class_path(own: Mapping[str, str]) -> Iterator[Path]:
    """Yield the jars of Spark itself, then those named in the user's own settings."""
    home = os.environ.get("SPARK_HOME")
    yield from _jars_in(Path(home) / "jars" if home else _installed() / "jars")
    listed = own.get("spark.driver.extraClassPath", "").split(os.pathsep)
    for entry in [*listed, *own.get("spark.jars", "").split(",")]:
        path = Path(entry.strip().removeprefix("file://"))
        if path.name == "*":
            yield from _jars_in(path.parent)
        elif path.suffix == ".jar":
            yield path


def _installed() -> Path:
    from importlib.util import find_spec

    module_spec = find_spec("pyspark")
    return Path(module_spec.origin).parent if module_spec and module_spec.origin else Path()


def _jars_in(folder: Path) -> list[Path]:
    """Return the jars in a folder, sorted; none when it cannot be listed."""
    try:
        return sorted(item for item in folder.iterdir() if item.suffix == ".jar")
    except OSError:
        return []


def _contains_plugin(jar: Path, known: Accelerator) -> bool:
    """Return whether a jar has the plugin; opened only if its name fits, as opening all Spark jars takes too long."""
    if known.named not in jar.name:
        return False
    try:
        with zipfile.ZipFile(jar) as inside:
            return f"{known.plugin.replace('.', '/')}.class" in inside.namelist()
    except (OSError, zipfile.BadZipFile):  # Java also treats it as a jar without classes
        return False


def _check_compatibility(known: Accelerator, jar: Path, spark: str) -> InstalledAccelerator:
    named = _FOR_SPARK.search(jar.name)
    if named and named[1] != ".".join(spark.split(".")[:2]):
        return InstalledAccelerator(known, jar, f"it is made for Spark {named[1]}, and this is {spark}")
    if known.device is not None and not known.device.exists():
        return InstalledAccelerator(known, jar, f"this machine has no {known.device}")
    return InstalledAccelerator(known, jar)
