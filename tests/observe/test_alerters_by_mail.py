"""Mail, read back from a real SMTP server: plain, with STARTTLS, with TLS, with and without a login."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from ematix_flow.alerters import email as mailing
from ematix_flow.alerters import from_url
from ematix_flow.alerters.email import EmailAlerter
from ematix_flow.foundation import redact
from ematix_flow.foundation.http import Undelivered
from tests.observe.samples import event, full_event
from tests.services.server import free_port

USER, PASSWORD = "ana@example.com", "p@ss/w:rd-99"


@dataclass
class Box:
    """What arrived, how, and for whom."""

    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    secured: list[bool] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    port: int = 0

    async def handle_DATA(self, _: Any, session: Any, envelope: Any) -> str:
        self.mails.append(message_from_bytes(envelope.content, policy=default))  # type: ignore[arg-type]
        self.recipients.append(list(envelope.rcpt_tos))
        self.secured.append(session.ssl is not None)
        return "250 taken"

    def login(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        right = isinstance(given, LoginPassword) and (given.login, given.password) == (USER.encode(), PASSWORD.encode())
        self.users.append(given.login.decode())
        return AuthResult(success=right)


@contextlib.contextmanager
def mail_server(*, tls: Path | None = None, implicit: bool = False, auth: bool = False) -> Iterator[Box]:
    box = Box()
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
    more: dict[str, Any] = (
        {"authenticator": box.login, "auth_required": True, "auth_require_tls": tls is not None} if auth else {}
    )
    if implicit:
        more["ssl_context"] = context
        if auth:
            more["auth_require_tls"] = False
    elif context is not None:
        more |= {"tls_context": context, "require_starttls": True}
    box.port = free_port()
    server = Controller(box, hostname="127.0.0.1", port=box.port, ready_timeout=30, **more)
    # Its own way to see whether the server answers speaks TLS with the server's half of the certificate.
    server._trigger_server = lambda: socket.create_connection(("127.0.0.1", box.port), 5).close()  # type: ignore[method-assign]
    server.start()
    try:
        yield box
    finally:
        server.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 and its key, signed by itself."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_mail_has_the_title_as_subject_and_the_facts_as_text() -> None:
    with mail_server() as box:
        from_url(f"email://127.0.0.1:{box.port}?to=ops@example.com,dba@example.com&starttls=0").notify(full_event())
    (mail,) = box.mails
    assert mail["Subject"] == "[ematix-flow] orders failed (attempt 2 of 3)"
    assert mail["To"] == "ops@example.com, dba@example.com"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert box.recipients == [["ops@example.com", "dba@example.com"]]
    assert box.secured == [False]
    text = mail.get_content()
    assert "  error    Unreachable: no server answers at db:5432" in text
    assert "  where    pipelines.py:41" in text
    assert "  more     flow runs show 1a2b3c4d" in text


def test_mails_of_one_outage_stand_in_one_thread() -> None:
    with mail_server() as box:
        alerter = from_url(f"email://127.0.0.1:{box.port}?to=a@b.c&starttls=0&from=flow@b.c")
        began = full_event().since
        alerter.notify(full_event())
        alerter.notify(event("recovered", minutes=5, since=began))
        alerter.notify(event("failed", minutes=50))
    first, second, third = box.mails
    assert first["References"] == second["References"] != third["References"]
    assert first["From"] == "flow@b.c"


def test_with_starttls_and_a_login_the_mail_travels_protected(certificate: Path) -> None:
    with mail_server(tls=certificate, auth=True) as box:
        login = f"{quote(USER)}:{quote(PASSWORD, safe='')}"
        from_url(f"email://{login}@127.0.0.1:{box.port}?to=ops@example.com&ca={certificate}").notify(event())
    assert box.secured == [True]
    assert box.users == [USER]
    assert box.mails[0]["From"] == USER


def test_with_tls_from_the_first_byte(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server(tls=certificate, implicit=True) as box:
        monkeypatch.setattr(mailing, "TLS_PORT", box.port)  # 465 is not ours to listen on
        alerter = EmailAlerter("127.0.0.1", box.port, to=["ops@example.com"], ca_file=str(certificate))
        alerter.send(event())
    assert [mail["Subject"] for mail in box.mails] == ["[ematix-flow] orders failed"]


def test_a_wrong_password_is_reported_without_it(certificate: Path) -> None:
    with mail_server(tls=certificate, auth=True) as box:
        alerter = EmailAlerter(
            "127.0.0.1", box.port, username=USER, password="wrong-geheim-1", to=["a@b.c"], ca_file=str(certificate)
        )
        with pytest.raises(Undelivered, match="did not take the mail") as caught:
            alerter.send(event())
    assert box.mails == []
    assert "wrong-geheim-1" not in str(caught.value)
    assert redact.mask("wrong-geheim-1") == "***"


def test_a_certificate_of_a_stranger_is_not_trusted(certificate: Path) -> None:
    with mail_server(tls=certificate) as box, pytest.raises(Undelivered, match=r"(?i)certificate"):
        EmailAlerter("127.0.0.1", box.port, to=["a@b.c"]).send(event())
    assert box.mails == []


def test_a_server_without_starttls_gets_no_mail_unless_that_is_configured() -> None:
    with mail_server() as box, pytest.raises(Undelivered, match="STARTTLS"):
        EmailAlerter("127.0.0.1", box.port, to=["a@b.c"]).send(event())
    assert box.mails == []


def test_a_subject_is_one_line_whatever_the_pipeline_is_called() -> None:
    with mail_server() as box:
        alerter = from_url(f"email://127.0.0.1:{box.port}?to=a@b.c&starttls=0")
        alerter.notify(event(pipeline="orders\r\nBcc: evil@example.com"))
    assert box.mails[0]["Bcc"] is None
    assert "\n" not in box.mails[0]["Subject"]


def test_a_server_that_is_not_there_is_an_error_in_words() -> None:
    with pytest.raises(Undelivered, match="did not take the mail"):
        EmailAlerter("127.0.0.1", 1, to=["a@b.c"], timeout=2).send(event())
