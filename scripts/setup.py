"""Make .venv: locked packages, the package itself, Java and the jars; answers at once when nothing changed.

pip installs uv and what builds packages (requirements-build.lock), uv the rest: requirements.lock, or for `setup.py demo`
requirements-demo.lock, which leaves out what only tests, other systems and development need. Nothing is asked of the network
that an earlier setup has left in the caches.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
BUILD_LOCK, DEMO_LOCK, JAVA_LOCK, LOCK = (
    ROOT / f"requirements{part}.lock" for part in ("-build", "-demo", "-java", "")
)
STAMP = VENV / "setup.stamp"
LOG = VENV / "setup.log"
OLDEST = (3, 10)
# pyspark comes as source only: what it is packed into is unpacked at once, so that compressing it is half a minute lost.
QUICK_BUILD = "pyspark:--build-option=--compression=stored"
# pip's settings of indexes and certificates hold for uv as well.
PIP_TO_UV = {
    "index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE",
    "no-index": "UV_NO_INDEX", "timeout": "UV_HTTP_TIMEOUT", "default-timeout": "UV_HTTP_TIMEOUT",
}  # fmt: skip
DEMO_JARS = ("delta",)
# Imported once while jars are fetched, so that the first run finds compiled modules.
IMPORTED = (
    "pandas, pyarrow, duckdb, deltalake, sqlglot, pyspark.sql.connect.session, ematix_flow.engine.batch.pipeline_run"
)
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
STARTED = time.monotonic()


def main(words: list[str]) -> None:
    use_a_recent_python()
    only_demo = words == ["demo"]
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = not is_up_to_date(only_demo=only_demo)
        if changed:
            make_venv()
            install_packages(only_demo=only_demo)
            STAMP.write_text(stamp(only_demo=only_demo), encoding="utf-8")
        provide_java()
        compiling = compile_modules() if changed else None
        fetch_jars(DEMO_JARS if only_demo else ())
        if compiling is not None:
            compiling.wait()
        if changed and not only_demo:  # the demo would start while the archive is made, and wait for the processor
            archive_classes()
    say("ready, nothing to do" if not changed else f"ready after {elapsed():.0f} s")


def use_a_recent_python() -> None:
    """Go on in a newer interpreter when `python3` is an old one."""
    if sys.version_info >= OLDEST:
        return
    for minor in (13, 12, 11, 10):
        newer = shutil.which(f"python3.{minor}")
        if newer:
            os.execv(newer, [newer, *sys.argv])
    found = sys.version.split()[0]
    give_up(f"Python 3.10 or newer is needed, this is {found}; install one, or run: make setup PYTHON=/path/to/python3")


def stamp(*, only_demo: bool) -> str:
    """What the environment was made from; any change of it means: make it again."""
    content = hashlib.sha256()
    for file in (BUILD_LOCK, DEMO_LOCK, LOCK, ROOT / "pyproject.toml", Path(__file__)):
        content.update(file.read_bytes())
    part = " demo" if only_demo else ""
    return f"{content.hexdigest()} {sys.version_info[0]}.{sys.version_info[1]} {ROOT}{part}\n"


def is_up_to_date(*, only_demo: bool) -> bool:
    enough = {stamp(only_demo=False), stamp(only_demo=only_demo)}
    try:
        return VENV_PYTHON.exists() and STAMP.read_text(encoding="utf-8") in enough
    except OSError:
        return False


def make_venv() -> None:
    STAMP.unlink(missing_ok=True)
    if is_usable_venv():
        return
    if not has_modules("venv", "ensurepip"):
        package = f"python3.{sys.version_info[1]}-venv"
        apt_install(
            [package], otherwise=f"this Python cannot make virtual environments; run: apt-get install {package}"
        )
    say(f"making .venv with Python {sys.version.split()[0]}")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True)
    if made.returncode != 0:
        give_up(f"{sys.executable} -m venv failed:\n{made.stdout}{made.stderr}")


def is_usable_venv() -> bool:
    """Whether .venv works, belongs to this place, and runs the same Python release."""
    if not VENV_PYTHON.exists():
        return False
    asked = "import pip, sys; print(*sys.version_info[:2], sys.prefix)"
    answer = subprocess.run([str(VENV_PYTHON), "-c", asked], capture_output=True, text=True)
    return answer.stdout.strip() == f"{sys.version_info[0]} {sys.version_info[1]} {VENV}"


def has_modules(*names: str) -> bool:
    asked = "import " + ", ".join(names)
    return subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode == 0


def install_packages(*, only_demo: bool) -> None:
    LOG.write_text("", encoding="utf-8")
    lock = DEMO_LOCK if only_demo else LOCK
    is_first = not any(VENV.glob("lib/*/site-packages/pyspark"))
    say(f"installing the packages of {lock.name}" + (" (Spark is large: this takes a while, once)" if is_first else ""))
    install_tools()
    only_locked = ["--no-build-isolation", "--config-settings-package", QUICK_BUILD]
    install_with_uv(["sync", "--require-hashes", *only_locked, str(lock)])
    install_with_uv(["install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])


def install_tools() -> None:
    """Install uv and what builds packages, from wheels that are kept in the cache."""
    pip = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    locked = ["--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(BUILD_LOCK)]
    wheels = cache_home() / "setup-wheels"
    from_cache = [*pip, "install", "--no-index", "--find-links", str(wheels), *locked]
    if run(from_cache) != 0:
        install([*pip, "download", "--dest", str(wheels), *locked])
        install(from_cache)


def install_with_uv(words: list[str]) -> None:
    """What is locked by its hash need not be looked up again: the index is asked only for what the cache lacks."""
    command = [str(VENV / "bin" / "uv"), "pip", *words]
    if run([*command, "--offline"]) != 0:
        install(command)


def cache_home() -> Path:
    """Return the folder of ematix_flow.foundation.cache, which cannot be imported before anything is installed."""
    own = os.environ.get("EMATIX_FLOW_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "ematix-flow"


def install(command: list[str]) -> None:
    """Run an installer; when it fails, show the end of its output and give up."""
    if run(command) != 0:
        tail = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        advice = f"the locked packages could not be installed: is the package index reachable? The whole log: {LOG}"
        give_up("\n".join([*tail, advice]))


def run(command: list[str]) -> int:
    """Run an installer with its output in the log, print from time to time that it is running, and return its exit code."""
    with LOG.open("a", encoding="utf-8") as log:
        running = subprocess.Popen(
            command, cwd=ROOT, env={**settings_of_pip(), **clean()}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    while (code := wait_for(running)) is None:
        say(f"  still installing, {elapsed():.0f} s")
    return code


def settings_of_pip() -> dict[str, str]:
    """Return pip's settings, from its files and variables, as uv's variables; uv's own variables win over them."""
    listed = subprocess.run(
        [str(VENV_PYTHON), "-m", "pip", "config", "list"], env=clean(), capture_output=True, text=True, check=False
    )
    found = {"VIRTUAL_ENV": str(VENV)}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        variable = PIP_TO_UV.get(name.rpartition(".")[2])
        if variable:
            found[variable] = " ".join(value.strip("'\"").split("\\n")).strip()
    return found


def wait_for(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code, or None when the process is still running after a while."""
    try:
        return process.wait(20)
    except subprocess.TimeoutExpired:
        return None


def clean() -> dict[str, str]:
    """The variables without those that point Python to other packages."""
    others = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in others}


def compile_modules() -> subprocess.Popen[bytes]:
    """Import in the background what a first run imports: Python keeps what it has compiled."""
    command = [str(VENV_PYTHON), "-c", f"import {IMPORTED}"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=ROOT, env=clean(), stdin=quiet, stdout=quiet, stderr=quiet)


def provide_java() -> None:
    """Spark needs a Java runtime: find one, or install it: as root with apt-get, else as a package into .venv."""
    sought = in_venv("ematix_flow.engine.session.java")
    if sought.returncode == 0:
        return
    if can_apt_install():
        apt_install([first_in_apt(JAVA_PACKAGES)], otherwise=sought.stderr.strip())
    else:
        say(f"no Java here: installing one into .venv ({JAVA_LOCK.name})")
        install_with_uv(["install", "--require-hashes", "--no-build-isolation", "-r", str(JAVA_LOCK)])
    again = in_venv("ematix_flow.engine.session.java")
    if again.returncode != 0:
        give_up(again.stderr.strip())


def fetch_jars(sets: tuple[str, ...]) -> None:
    """Fetch these jar sets, or all; progress goes straight through, the paths are of no interest here."""
    command = [str(VENV_PYTHON), "-m", "ematix_flow.engine.session.jars", *sets]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode != 0:
        give_up("the jars for Spark could not be fetched (see above)")


def archive_classes() -> None:
    """Spark starts in half the time from a class archive; making one takes a while and blocks no command."""
    with (VENV / "archive.log").open("wb") as log:
        subprocess.Popen(
            [str(VENV_PYTHON), "-m", "ematix_flow.engine.session.class_archive", "--at-hand"],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "EMATIX_FLOW_NICE": "10", "EMATIX_FLOW_ENGINE": "local"},
        )  # fmt: skip


def in_venv(module: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(VENV_PYTHON), "-m", module], cwd=ROOT, capture_output=True, text=True)


def first_in_apt(packages: tuple[str, ...]) -> str:
    """The first package this release of the distribution has; a fresh machine knows none before an update."""
    if os.geteuid() == 0 and shutil.which("apt-cache"):
        apt_get("update", "-qq")
        for package in packages:
            if subprocess.run(["apt-cache", "show", package], capture_output=True).stdout:
                return package
    return packages[0]


def can_apt_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: list[str], *, otherwise: str) -> None:
    """Install packages of the distribution as root; else end with the sentence that says what to do."""
    if not can_apt_install():
        give_up(otherwise)
    say(f"installing {' '.join(packages)} with apt-get")
    # A failing update may be one dead source among many: only the installation decides.
    apt_get("update", "-qq")
    done = apt_get("install", "-y", "-qq", "--no-install-recommends", *packages)
    if done.returncode != 0:
        give_up(f"{done.stdout[-3000:]}\napt-get could not install {' '.join(packages)}\n{otherwise}")


def apt_get(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    pipe, joined = subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(["apt-get", *words], env=environment, input="", text=True, stdout=pipe, stderr=joined)


def elapsed() -> float:
    return time.monotonic() - STARTED


def say(line: str) -> None:
    print(f"setup: {line}", flush=True)


def give_up(reason: str) -> NoReturn:
    sys.stdout.flush()
    sys.exit(f"setup: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
