"""`python -m tests.services install` brings the servers to this machine, `build` also those that take long to make;
`up` runs them until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

from tests.services import (
    start_azure,
    start_gcs,
    start_kafka,
    start_mariadb,
    start_mysql8,
    start_postgres,
    start_rabbitmq,
    start_s3,
)
from tests.services.install import build_servers, install
from tests.services.supervisor import keep


def main(words: list[str]) -> int:
    """Do what the first word says."""
    if words == ["install"]:
        return install()
    if words == ["build"]:
        return install() or build_servers()
    if words == ["up"]:
        return _up()
    if len(words) == 4 and words[0] == "keep":
        keep(words[1], record=Path(words[2]), owner=int(words[3]))
        return 0
    sys.stderr.write("usage: python -m tests.services install | build | up\n")
    return 2


def _up() -> int:
    for start in (
        start_postgres,
        start_mariadb,
        start_mysql8,
        start_kafka,
        start_rabbitmq,
        start_s3,
        start_azure,
        start_gcs,
    ):
        print(start().url, flush=True)
    print("running; Ctrl-C stops them", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
