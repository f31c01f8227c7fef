"""Kinesis as kinesalite, started as a library: its own command would listen on every interface."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.services.built import KINESALITE, product
from tests.services.server import Account, Server, end, free_port, launch, wait_until_ready

ACCESS = {"access_key_id": "flow", "secret_access_key": "the-secret-of-the-tests"}
REGION = "us-east-1"
_OURSELVES = Account(uid=None, gid=None)
_QUICK = {"createStreamMs": 20, "updateStreamMs": 20, "deleteStreamMs": 20, "shardLimit": 1000}


def start(folder: Path) -> Server:
    """A Kinesis that keeps everything in memory and asks nobody who he is."""
    library, port = product(KINESALITE), free_port()
    script = f"require({json.dumps(str(library))})({json.dumps(_QUICK)}).listen({port}, '127.0.0.1')"
    process = launch(["node", "-e", script], account=_OURSELVES, folder=folder, death_signal=signal.SIGTERM)
    url = f"http://127.0.0.1:{port}"
    wait_until_ready(process, connect=lambda: _ask(url), folder=folder)
    return Server(url=url, stop=lambda: end(process, by=signal.SIGTERM))


def _ask(url: str) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "kinesis", endpoint_url=url, region_name=REGION, aws_access_key_id=ACCESS["access_key_id"],
        aws_secret_access_key=ACCESS["secret_access_key"],
        config=Config(connect_timeout=1, retries={"total_max_attempts": 1}),
    )  # fmt: skip
    client.list_streams()
