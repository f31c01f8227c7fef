"""A schema registry: Apicurio from its pinned archive, spoken to by Confluent's protocol."""

from __future__ import annotations

import signal
import tarfile
import urllib.request
from pathlib import Path

from tests.services.server import Account, Server, ServiceMissing, end, free_port, launch, wait_until_ready

LOCK = Path(__file__).with_name("jars.lock.toml")
_OURSELVES = Account(uid=None, gid=None)
# A small heap, and no compiler that pays off after minutes only.
_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


def start(folder: Path) -> Server:
    """A registry that keeps everything in memory, and takes every schema until a subject is told otherwise."""
    program, port = unpack(folder), free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    settings = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN")
    process = launch(
        [_java(), *_JAVA, *settings, "-jar", str(program)],
        account=_OURSELVES, folder=folder, death_signal=signal.SIGKILL,
    )  # fmt: skip
    wait_until_ready(
        process, connect=lambda: urllib.request.urlopen(f"{url}/subjects", timeout=2).close(), folder=folder
    )
    # Nothing is kept, so nothing needs an orderly end.
    return Server(url=url, stop=lambda: end(process, by=signal.SIGKILL))


def unpack(folder: Path) -> Path:
    """The registry's program, unpacked into `folder`."""
    from ematix_flow.engine.session import jars
    from ematix_flow.foundation.errors import FlowError

    try:
        (archive,) = jars.ensure_jars(["apicurio"], lock=LOCK)
    except FlowError as error:
        raise ServiceMissing(f"{error.what}; run: make services") from error
    with tarfile.open(archive) as tree:
        tree.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tree.extractall(folder)
    for program in folder.rglob("apicurio-registry-app-*-runner.jar"):
        return program
    raise ServiceMissing("the archive of Apicurio holds no program")


def _java() -> str:
    from ematix_flow.engine.session.java import find_java
    from ematix_flow.foundation.errors import FlowError

    try:
        return str(find_java())
    except FlowError as error:
        raise ServiceMissing(f"{error.what}; run: make setup") from error
