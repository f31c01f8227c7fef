"""Object stores: S3 as versitygw, Azure Blob Storage as azurite, Google Cloud Storage as fake-gcs-server."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.services.built import AZURITE, FAKE_GCS, VERSITYGW, product
from tests.services.server import Account, Server, end, free_port, launch, wait_until_ready

PLACE = "flow-tests"
"""The bucket or container that every store has from the beginning."""
S3_ACCESS = {"AWS_ACCESS_KEY_ID": "flow", "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-tests"}
AZURE_ACCOUNT = "flowtests"
AZURE_ACCESS = {"AZURE_STORAGE_KEY": "dGhlLXNlY3JldC1rZXktb2YtdGhlLXRlc3RzLWZvci1henVyaXRl"}
_OURSELVES = Account(uid=None, gid=None)


def start_s3(folder: Path) -> Server:
    """An S3 server that checks signatures, on the files of a folder."""
    program, port, data = product(VERSITYGW), free_port(), folder / "data"
    data.mkdir()
    url = f"http://127.0.0.1:{port}"
    keys = {"ROOT_ACCESS_KEY": S3_ACCESS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": S3_ACCESS["AWS_SECRET_ACCESS_KEY"]}
    command = [str(program), "--port", f"127.0.0.1:{port}", "posix", str(data)]
    return _serve(command, folder, url, lambda: _make_s3_bucket(url), keys)


def start_azure(folder: Path) -> Server:
    """Azure's emulator with one account and its key."""
    script, port = product(AZURITE), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        "node", str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port),
        "--skipApiVersionCheck", "--disableTelemetry", "--silent", "--inMemoryPersistence",
    ]  # fmt: skip
    keys = {"AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_ACCESS['AZURE_STORAGE_KEY']}"}
    return _serve(command, folder, url, lambda: _make_azure_container(url), keys)


def start_gcs(folder: Path) -> Server:
    """A Google Cloud Storage that lives in memory and asks nobody who he is."""
    program, port = product(FAKE_GCS), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory",
        "-public-host", f"127.0.0.1:{port}", "-log-level", "error",
    ]  # fmt: skip
    return _serve(command, folder, url, lambda: _make_gcs_bucket(url), {})


def _serve(command: list[str], folder: Path, url: str, connect: Callable[[], None], keys: dict[str, str]) -> Server:
    process = launch(command, account=_OURSELVES, folder=folder, death_signal=signal.SIGTERM, environment=keys)
    wait_until_ready(process, connect=connect, folder=folder)
    return Server(url=url, stop=lambda: end(process, by=signal.SIGTERM))


def _make_s3_bucket(url: str) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=S3_ACCESS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=S3_ACCESS["AWS_SECRET_ACCESS_KEY"],
        config=Config(connect_timeout=1, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )  # fmt: skip
    client.create_bucket(Bucket=PLACE)


def _make_azure_container(url: str) -> None:
    from azure.storage.blob import ContainerClient

    access = {"account_name": AZURE_ACCOUNT, "account_key": AZURE_ACCESS["AZURE_STORAGE_KEY"]}
    client = ContainerClient(f"{url}/{AZURE_ACCOUNT}", PLACE, credential=access, retry_total=0, connection_timeout=1)
    with client:
        client.create_container()


def _make_gcs_bucket(url: str) -> None:
    body = f'{{"name": "{PLACE}"}}'.encode()
    asked = urllib.request.Request(
        f"{url}/storage/v1/b?project=tests", data=body, headers={"Content-Type": "application/json"}
    )
    urllib.request.urlopen(asked, timeout=2).close()
