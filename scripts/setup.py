"""Make .venv: locked packages, the package itself, Java and the jars; answers at once when nothing changed."""

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
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "setup.stamp"
LOG = VENV / "setup.log"
OLDEST = (3, 10)
# pyspark comes as source: what builds it has to be there before the rest of the lock can be installed.
BUILD_TOOLS = ("setuptools", "wheel", "packaging")
JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
STARTED = time.monotonic()


def main() -> None:
    use_a_recent_python()
    with LOCK.open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = not is_up_to_date()
        if changed:
            make_venv()
            install_packages()
            STAMP.write_text(stamp(), encoding="utf-8")
        provide_java()
        fetch_jars()
        if changed:
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


def stamp() -> str:
    """What the environment was made from; any change of it means: make it again."""
    content = hashlib.sha256()
    for part in (LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), Path(__file__).read_bytes()):
        content.update(part)
    return f"{content.hexdigest()} {sys.version_info[0]}.{sys.version_info[1]} {ROOT}\n"


def is_up_to_date() -> bool:
    try:
        return VENV_PYTHON.exists() and STAMP.read_text(encoding="utf-8") == stamp()
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


def install_packages() -> None:
    LOG.write_text("", encoding="utf-8")
    blocks = lock_blocks()
    is_first = not any(VENV.glob("lib/*/site-packages/pyspark"))
    say(
        f"installing {len(blocks)} locked packages"
        + (" (Spark is large: this takes minutes, once)" if is_first else "")
    )
    tools = VENV / "build-tools.lock"
    tools.write_text("".join(blocks[name] for name in BUILD_TOOLS), encoding="utf-8")
    pip("install", "--require-hashes", "--no-deps", "-r", str(tools))
    pip("install", "--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(LOCK))
    pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def lock_blocks() -> dict[str, str]:
    """The lock file, package by package: a line with the version, then its indented hashes."""
    blocks: dict[str, str] = {}
    name = ""
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.startswith(" "):
            name = line.split("==")[0]
        blocks[name] = blocks.get(name, "") + line
    return blocks


def pip(*words: str) -> None:
    """Run pip with its talk in the log, and show that it is alive."""
    command = [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with LOG.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while True:
        try:
            code = process.wait(20)
            break
        except subprocess.TimeoutExpired:
            say(f"  still installing, {elapsed():.0f} s")
    if code != 0:
        tail = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-25:]
        advice = f"the locked packages could not be installed: is the package index reachable? The whole log: {LOG}"
        give_up("\n".join([*tail, advice]))


def provide_java() -> None:
    """Spark needs a Java runtime: find one, or install it where that is ours to do."""
    sought = in_venv("ematix_flow.engine.java")
    if sought.returncode == 0:
        return
    apt_install([first_in_apt(JAVA_PACKAGES)], otherwise=sought.stderr.strip())
    again = in_venv("ematix_flow.engine.java")
    if again.returncode != 0:
        give_up(again.stderr.strip())


def fetch_jars() -> None:
    """Progress goes straight through; the paths are of no interest here."""
    command = [str(VENV_PYTHON), "-m", "ematix_flow.engine.jars"]
    if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode != 0:
        give_up("the jars for Spark could not be fetched (see above)")


def archive_classes() -> None:
    """Spark starts in half the time from a class archive; making one takes a while and stops nobody."""
    with (VENV / "archive.log").open("wb") as log:
        subprocess.Popen(
            [str(VENV_PYTHON), "-m", "ematix_flow.engine.archive", "--at-hand"],
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


def apt_install(packages: list[str], *, otherwise: str) -> None:
    """Install packages of the distribution as root; else end with the sentence that says what to do."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
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
    main()
