"""Ivy, the downloader among pyspark's own jars, run once for an exact list of jars."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol
from xml.sax.saxutils import quoteattr

from ematix_flow.engine.session.java import find_java
from ematix_flow.foundation.errors import FlowError, RunFailed, StorageFull, Unreachable

Progress = Callable[[str], None]

_PATIENCE_SECONDS = 900
_SETTINGS_VARIABLE = "EMATIX_FLOW_IVY_SETTINGS"
_NO_ANSWER = re.compile(
    r"destination server|server access error|timed out|connection (refused|reset)|unknownhost|host .* not found|"
    r"network is unreachable|sslexception|sslhandshake|PKIX|stopped after",
    re.IGNORECASE,
)


class Coordinates(Protocol):
    """The coordinates of a jar in a repository."""

    @property
    def group(self) -> str: ...
    @property
    def artifact(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def classifier(self) -> str: ...
    @property
    def ext(self) -> str: ...


def file_name(jar: Coordinates) -> str:
    """Return the file name of a jar; it contains the group, as two groups may use one artifact name."""
    variant = f"-{jar.classifier}" if jar.classifier else ""
    return f"{jar.group}_{jar.artifact}-{jar.version}{variant}.{jar.ext}"


def fetch_jars(jars: Iterable[Coordinates], *, into: Path, on_progress: Progress) -> None:
    """Download these jars, without their transitive dependencies, into a folder; raise FlowError if one is missing."""
    wanted = list(jars)
    description = into / "ivy.xml"
    description.write_text(_describe(wanted), encoding="utf-8")
    output = _run(_command(description, into=into), on_progress=on_progress)
    absent = [jar for jar in wanted if not (into / file_name(jar)).is_file()]
    if absent:
        raise _reason(absent, output=output)


def _describe(jars: list[Coordinates]) -> str:
    """Return Ivy's XML description of the download: `master` is the jar itself, without sources and documentation."""
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        f' conf="default-&gt;master(default)" transitive="false">{_variant(jar)}</dependency>'
        for jar in jars
    ]
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="ematix-flow" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )


def _variant(jar: Coordinates) -> str:
    """Return the artifact element for a jar with a classifier or another extension, empty for a plain jar."""
    if jar.ext == "jar" and not jar.classifier:
        return ""
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f"<artifact name={quoteattr(jar.artifact)} type={quoteattr(jar.ext)} ext={quoteattr(jar.ext)}{classifier}/>"


# Only the named files are fetched: their POMs, and those of their parents, are not needed.
_SETTINGS = """<ivysettings><settings defaultResolver="public"/>
<resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers></ivysettings>"""


def _settings(into: Path) -> Path:
    """Return the user's Ivy settings file, else a generated one."""
    named = os.environ.get(_SETTINGS_VARIABLE)
    if named:
        return Path(named)
    own = into / "ivysettings.xml"
    own.write_text(_SETTINGS, encoding="utf-8")
    return own


def _command(description: Path, *, into: Path) -> list[str]:
    return [
        str(find_java()),
        # Without this, jars in ~/.ivy2 would take precedence over those that the lock names.
        f"-Divy.default.ivy.user.dir={into / 'ivy'}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *("-settings", str(_settings(into))),
        *("-cache", str(into / "ivy" / "cache")),
        *("-ivy", str(description)),
        *("-confs", "default"),
        *("-retrieve", f"{into}/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _ivy_jar() -> Path:
    """Return pyspark's own Ivy jar, located without importing pyspark; raise RunFailed if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        for jar in sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")):
            return jar
    raise RunFailed("pyspark's own jars are not installed, so none can be fetched", hint="pip install pyspark==4.1.3")


def _run(command: list[str], *, on_progress: Progress) -> str:
    """Run the command and return Ivy's output; report each jar when it arrives."""
    output: list[str] = []
    with subprocess.Popen(  # noqa: S603  fixed program and arguments, no shell
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        alarm = threading.Timer(_PATIENCE_SECONDS, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            assert process.stdout is not None  # noqa: S101  stdout is a pipe
            for line in process.stdout:
                output.append(line)
                arrived = re.search(r"\[SUCCESSFUL \] .*?#(.+?);(.+?)!", line)
                if arrived:
                    on_progress(f"got {arrived.group(1)} {arrived.group(2)}")
        except BaseException:
            process.kill()
            raise
        finally:
            alarm.cancel()
    if process.returncode == -9:
        output.append(f"stopped after {_PATIENCE_SECONDS} s\n")
    return "".join(output)


def _reason(absent: list[Coordinates], *, output: str) -> FlowError:
    """Return the error that matches Ivy's output."""
    first, others = absent[0], len(absent) - 1
    names = f"{first.artifact} {first.version}" + (f" and {others} more" if others else "")
    if "No space left on device" in output:
        return StorageFull(f"no room to store {names}", hint="free some space, or point EMATIX_FLOW_CACHE elsewhere")
    if _NO_ANSWER.search(output):
        return Unreachable(
            f"could not reach the jar repository for {names}",
            hint=f"check the network or proxy, then again; a mirror goes into {_SETTINGS_VARIABLE}=ivysettings.xml",
        )
    unknown = re.findall(r":: \S+?#(\S+?);(\S+?): not found", output)
    return RunFailed(
        f"the jar repository does not hold {', '.join(' '.join(pair) for pair in unknown) or names}",
        hint=f"if a mirror is in use, name it in {_SETTINGS_VARIABLE}=ivysettings.xml",
    )
