"""Kafka from pinned jars: one broker that is its own controller, open, with logins, and with certificates."""

from __future__ import annotations

import base64
import os
import signal
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.services import certificates
from tests.services.server import Account, Server, ServiceMissing, end, free_port, launch, run_once, wait_until_ready

LOCK = Path(__file__).with_name("jars.lock.toml")
USER, PASSWORD = "flow", "the-secret-of-the-tests"
_OURSELVES = Account(uid=None, gid=None)
# A small heap, and no compiler that pays off after minutes only.
_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_LOGGED = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")


@dataclass(frozen=True)
class Kafka:
    """A running broker, by its three doors."""

    open: str
    """Lets everybody in."""
    logins: str
    """Asks for the user and the password above, by SCRAM or PLAIN."""
    certificates: str
    """Speaks TLS, and asks for a certificate."""
    folder: Path
    """Holds ca.pem, client.pem and client.key."""
    pid: int

    @classmethod
    def of(cls, url: str) -> Kafka:
        """What a record of the session says."""
        parts = urlsplit(url)
        words = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return cls(parts.netloc, words["logins"], words["tls"], Path(parts.path), int(words["pid"]))


def start(folder: Path) -> Server:
    """A broker in `folder`."""
    _client()
    classes = os.pathsep.join(str(path) for path in class_path())
    ports = [free_port() for _ in range(4)]
    certificates.make(folder)
    (folder / "server.properties").write_text(_settings(folder, *ports), encoding="utf-8")
    java = [_java(), *_JAVA, *_LOGGED, "-cp", classes]
    scram = [f"SCRAM-SHA-{size}=[name={USER},password={PASSWORD}]" for size in (256, 512)]
    run_once(
        [
            *(*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", "server.properties"),
            *(word for login in scram for word in ("--add-scram", login)),
        ],
        account=_OURSELVES,
        folder=folder,
    )
    process = launch(
        [*java, "kafka.Kafka", "server.properties"], account=_OURSELVES, folder=folder, death_signal=signal.SIGKILL
    )
    plain, logins, tls, _ = (f"127.0.0.1:{port}" for port in ports)
    wait_until_ready(process, connect=lambda: _answer(plain), folder=folder)
    return Server(
        url=f"kafka://{plain}{folder}?logins={logins}&tls={tls}&pid={process.pid}",
        # Nothing is kept, so nothing needs an orderly end.
        stop=lambda: end(process, by=signal.SIGKILL),
    )


def class_path() -> list[Path]:
    """The broker's jars, fetched once."""
    from ematix_flow.engine.session import jars
    from ematix_flow.foundation.errors import FlowError

    try:
        return jars.ensure_jars(["kafka-broker"], lock=LOCK)
    except FlowError as error:
        raise ServiceMissing(f"{error.what}; run: make services") from error


def _java() -> str:
    from ematix_flow.engine.session.java import find_java
    from ematix_flow.foundation.errors import FlowError

    try:
        return str(find_java())
    except FlowError as error:
        raise ServiceMissing(f"{error.what}; run: make setup") from error


def _client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as missing:
        raise ServiceMissing("the tests of Kafka need confluent-kafka; run: make setup") from missing


def _cluster_id() -> str:
    made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _cluster_id() if made.startswith("-") else made  # which would be read as an option


def _answer(address: str) -> None:
    from confluent_kafka.admin import AdminClient

    AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)


def _settings(folder: Path, plain: int, logins: int, tls: int, controller: int) -> str:
    module = "org.apache.kafka.common.security"
    login = f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}"'
    listeners = f"OPEN://127.0.0.1:{plain},LOGINS://127.0.0.1:{logins},TLS://127.0.0.1:{tls}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "OPEN",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGINS:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "listener.name.logins.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.logins.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.logins.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {login};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _one_line(folder / "server.pem"),
        "ssl.keystore.key": _one_line(folder / "server.key"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _one_line(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "log.dirs": str(folder / "data"),
        "num.partitions": "1",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "log.cleaner.dedupe.buffer.size": "8388608",
        "num.network.threads": "2",
        "num.io.threads": "2",
        "background.threads": "2",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _one_line(path: Path) -> str:
    """Text of many lines as a properties file has it."""
    return path.read_text(encoding="utf-8").replace("\n", "\\n")
