"""PostgreSQL from the distribution's packages, without durability, as tests need it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.services.server import (
    Server,
    ServiceMissing,
    account_for,
    end,
    free_port,
    launch,
    run_once,
    wait_until_ready,
)

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


def program_folder() -> Path:
    """Where initdb and postgres are: the newest release the packages brought, else PATH."""
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    folders = [*reversed(packaged), *([Path(on_path).parent] if on_path else [])]
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise ServiceMissing("PostgreSQL is not installed; run: make services")


def start(folder: Path) -> Server:
    """A new cluster in `folder`, owned by the superuser flow with the password flow."""
    programs, account, port = program_folder(), account_for("postgres"), free_port()
    password = folder / "password"
    password.write_text("flow\n", encoding="utf-8")
    for path in (folder, password):
        account.owns(path)
    run_once(
        [
            *(str(programs / "initdb"), "--pgdata", "data", "--username", "flow", "--pwfile", "password"),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
        ],
        account=account,
        folder=folder,
    )
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    process = launch(
        [str(programs / "postgres"), "-D", "data", "-p", str(port), *settings],
        account=account,
        folder=folder,
        death_signal=signal.SIGINT,
    )
    wait_until_ready(process, connect=lambda: _create_database(port), folder=folder)
    return Server(
        url=f"postgresql://flow:flow@127.0.0.1:{port}/flow",
        # SIGINT is PostgreSQL's fast shutdown: it does not wait for open sessions.
        stop=lambda: end(process, by=signal.SIGINT),
    )


def _create_database(port: int) -> None:
    import psycopg

    with psycopg.connect(f"postgresql://flow:flow@127.0.0.1:{port}/postgres", autocommit=True) as connection:
        connection.execute("CREATE DATABASE flow")
