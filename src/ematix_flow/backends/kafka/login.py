"""The login of a Kafka connection, as settings of librdkafka and as options of Spark's connector."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ematix_flow.backends.kafka import msk
from ematix_flow.declare.connections import KafkaConnection
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.redact import remember_secret

_SCRAM = {"sha-256": "SCRAM-SHA-256", "sha-512": "SCRAM-SHA-512"}
_ENCRYPTED = {"ssl": True, "sasl_ssl": True, "plaintext": False, "sasl_plaintext": False}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_MSK_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
_MSK_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"


@dataclass(frozen=True)
class KafkaLogin:
    """The addresses and login of a cluster, secrets resolved, certificates as text: tasks need none of the files."""

    servers: str
    encrypted: bool
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    region: str | None = None
    authority: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, connection: KafkaConnection) -> KafkaLogin:
        """Return the login of a connection."""
        ready = connection.resolved()
        servers, encrypted = _addresses(ready)
        mechanism, username, password = _login(ready)
        texts = {name: _text_of(ready, name) for name in ("tls_ca_path", "tls_cert_path", "tls_key_path")}
        has_texts = any(texts.values())
        return cls(
            servers=servers,
            encrypted=(has_texts or bool(ready.msk_iam_region)) if encrypted is None else encrypted,
            mechanism=mechanism,
            username=username,
            password=password,
            region=ready.msk_iam_region,
            authority=texts["tls_ca_path"],
            certificate=texts["tls_cert_path"],
            key=_private_key(ready, texts["tls_key_path"]),
        )

    @property
    def protocol(self) -> str:
        """Return Kafka's name of the security protocol."""
        wire = "SSL" if self.encrypted else "PLAINTEXT"
        return f"SASL_{wire}" if self.mechanism else wire

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the settings of confluent-kafka's clients."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "client.id": "ematix-flow",
            "log_level": 0,  # its errors arrive by callback, and are raised as FlowErrors
        }
        if self.region is not None:
            settings |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": functools.partial(msk.token, self.region)}
        elif self.mechanism is not None:
            settings |= {
                "sasl.mechanism": self.mechanism, "sasl.username": self.username, "sasl.password": self.password,
            }  # fmt: skip
        if self.encrypted:
            texts = {"ssl.ca.pem": self.authority, "ssl.certificate.pem": self.certificate, "ssl.key.pem": self.key}
            settings |= {name: text for name, text in texts.items() if text}
        return settings

    def for_spark(self) -> dict[str, str]:
        """Return the options of Spark's connector."""
        options = {"kafka.bootstrap.servers": self.servers, "kafka.security.protocol": self.protocol}
        if self.region is not None:
            options |= {
                "kafka.sasl.mechanism": "AWS_MSK_IAM",
                "kafka.sasl.jaas.config": f"{_MSK_MODULE} required;",
                "kafka.sasl.client.callback.handler.class": _MSK_HANDLER,
            }
        elif self.mechanism is not None:
            module = _MODULES[self.mechanism]
            login = f"{module} required username={_quoted(self.username)} password={_quoted(self.password)};"
            options |= {"kafka.sasl.mechanism": self.mechanism, "kafka.sasl.jaas.config": login}
        if self.encrypted and self.authority:
            options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": self.authority}
        if self.encrypted and self.certificate and self.key:
            options |= {
                "kafka.ssl.keystore.type": "PEM",
                "kafka.ssl.keystore.certificate.chain": self.certificate,
                "kafka.ssl.keystore.key": self.key,
            }
        return options


def _addresses(ready: KafkaConnection) -> tuple[str, bool | None]:
    """Return the servers without their protocol prefixes, and whether these require encryption; None without any."""
    encrypted: set[bool] = set()
    servers = []
    for item in ready.bootstrap_servers.split(","):
        protocol, mark, address = item.strip().rpartition("://")
        if mark and protocol.lower() not in _ENCRYPTED:
            raise ConfigError(
                f"connection {ready.name!r}: bootstrap_servers names the protocol {protocol!r}, which Kafka does not have",
                where=ready.declared_at,
                hint="write host:port, or SASL_SSL://host:port for a cluster with public certificates",
            )
        if mark:
            encrypted.add(_ENCRYPTED[protocol.lower()])
        if address:
            servers.append(address)
    if len(encrypted) > 1:
        raise ConfigError(
            f"connection {ready.name!r}: some of its bootstrap_servers are encrypted and some are not",
            where=ready.declared_at,
            hint="name listeners of one kind",
        )
    return ",".join(servers), encrypted.pop() if encrypted else None


def _login(ready: KafkaConnection) -> tuple[str | None, str, str]:
    if ready.sasl_plain_username and ready.sasl_plain_password:
        return "PLAIN", ready.sasl_plain_username, ready.sasl_plain_password
    if ready.sasl_scram_username and ready.sasl_scram_password:
        mechanism = _SCRAM.get(ready.sasl_scram_mechanism or "")
        if mechanism is None:
            raise ConfigError(
                f"connection {ready.name!r}: sasl_scram_mechanism is {ready.sasl_scram_mechanism!r}",
                where=ready.declared_at,
                hint=f"valid: {', '.join(_SCRAM)}",
            )
        return mechanism, ready.sasl_scram_username, ready.sasl_scram_password
    return ("AWS_MSK_IAM", "", "") if ready.msk_iam_region else (None, "", "")


def _text_of(ready: KafkaConnection, name: str) -> str | None:
    path = getattr(ready, name)
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise ConfigError(
            f"connection {ready.name!r}: {name} = {path} cannot be read: {reason}",
            where=ready.declared_at,
            hint="name a PEM file that this user may read",
        ) from None


def _private_key(ready: KafkaConnection, text: str | None) -> str | None:
    """Return the key; raise ConfigError unless it is unencrypted PKCS#8, the only form that Java reads."""
    if text is None:
        return None
    remember_secret(text)
    if "-----BEGIN PRIVATE KEY-----" not in text:
        path = ready.tls_key_path
        raise ConfigError(
            f"connection {ready.name!r}: the key in {path} is not in the PKCS#8 form, or it is encrypted",
            where=ready.declared_at,
            hint=f"openssl pkcs8 -topk8 -nocrypt -in {path} -out key.pem, and name the new file",
        )
    return text


def _quoted(value: str) -> str:
    r"""Return a value quoted for a JAAS line.

    >>> print(_quoted('a"b\\c'))
    "a\"b\\c"
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
