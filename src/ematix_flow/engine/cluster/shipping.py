"""Transfer of Python code that tasks need to executors: this package as a zip, the user's own modules by value."""

from __future__ import annotations

import contextlib
import hashlib
import os
import py_compile
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.engine.session.jars import cache_folder
from ematix_flow.foundation.packages import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = Path(__file__).resolve().parents[2]
_KEPT_SECONDS = 7 * 86400
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip; a fixed time makes zips reproducible


def ship_package(session: SparkSession) -> None:
    """Send this package to the session's tasks, where it precedes any version installed on a worker."""
    archive = str(package_zip())
    if is_connect(session):
        session.addArtifacts(archive, pyfile=True)
    else:
        session.sparkContext.addPyFile(archive)


def is_connect(session: SparkSession) -> bool:
    """Return whether the session runs in a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def package_zip() -> Path:
    """Return a zip of the package with its compiled files; its name contains a hash of the files' sizes and times."""
    files = sorted(path for path in _OURS.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for path in files:
        digest.update(f"{path.relative_to(_OURS)}|{path.stat().st_size}|{path.stat().st_mtime_ns}|".encode())
    home = cache_folder().with_name("package")
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    archive = home / f"ematix_flow-{__version__}-{digest.hexdigest()[:12]}.zip"
    if not archive.exists():
        _write(files, archive)
        _remove_old_packages(home)
    return archive


def _remove_old_packages(home: Path) -> None:
    for path in home.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()


def _write(files: list[Path], archive: Path) -> None:
    part = archive.with_suffix(f".{os.getpid()}.part")
    with tempfile.TemporaryDirectory() as compiled, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        for path in files:
            inside = f"{_OURS.name}/{path.relative_to(_OURS)}"
            _add(out, inside, path.read_bytes())
            if path.suffix == ".py":  # an interpreter of another version uses the source
                target = Path(compiled) / "one.pyc"
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(path), str(target), inside, doraise=True, invalidation_mode=mode)
                _add(out, f"{inside}c", target.read_bytes())
    part.replace(archive)


def _add(out: zipfile.ZipFile, name: str, content: bytes) -> None:
    out.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)


class _ShippedModules:
    """The number of loaded modules at the last scan."""

    modules = 0


def send_own_modules() -> None:
    """Pickle the user's modules by value, because executors cannot import them."""
    if len(sys.modules) == _ShippedModules.modules:
        return
    _ShippedModules.modules = len(sys.modules)
    from pyspark import cloudpickle

    folders = [Path.cwd(), *(Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)]
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _is_the_users(file, module, folders):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_the_users(file: str, module: Any, folders: list[Path]) -> bool:
    if "site-packages" in file or file.startswith(sys.base_prefix) or Path(file).is_relative_to(_OURS):
        return False
    return module.__name__ in sys.modules and any(Path(file).is_relative_to(folder) for folder in folders)
