"""Alerts as mail over SMTP: with STARTTLS, with TLS from the first byte, or unencrypted if configured."""

from __future__ import annotations

import hashlib
import smtplib
import socket
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid

from ematix_flow.alerters.event import AlertEvent, Sender
from ematix_flow.alerters.text import alert_lines, alert_title
from ematix_flow.declare.connections import urls
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.http import Undelivered
from ematix_flow.foundation.redact import mask, remember_secret

SUBMISSION_PORT, TLS_PORT = 587, 465
_PARAMETERS = ("to", "from", "starttls", "ca")
_OFF = ("0", "false", "no", "off")


class EmailAlerter(Sender):
    """An alerter that sends one mail per alert; mails of one outage are in one thread.

    Port 465 uses TLS from the start, any other port STARTTLS unless `use_starttls=False`. `ca_file` is the certificate
    authority of a private server.
    """

    def __init__(self, host: str, port: int = SUBMISSION_PORT, *, username: str | None = None,
                 password: str | None = None, from_addr: str | None = None, to: Sequence[str],
                 use_starttls: bool = True, timeout: float = 10.0, ca_file: str | None = None) -> None:  # fmt: skip
        super().__init__()
        if not host:
            raise ConfigError("an email alerter needs a mail server", hint="write email://user:…@host:587?to=a@b.c")
        if not to:
            raise ConfigError("an email alerter needs a recipient", hint="add ?to=a@example.com,b@example.com")
        remember_secret(password)
        self.host, self.port = host, port
        self.username, self._password = username, password or ""
        self.from_addr = from_addr or (username if username and "@" in username else f"ematix-flow@{_host_name()}")
        self.to = list(to)
        self.use_starttls = use_starttls and port != TLS_PORT
        self._timeout = timeout
        self._ca_file = ca_file
        self.address = f"email://{host}:{port}"

    def send(self, event: AlertEvent) -> None:
        """Send the mail; raise Undelivered on failure."""
        try:
            with self._connected() as server:
                if self.use_starttls:
                    server.starttls(context=self._context())
                if self.username:
                    server.login(self.username, self._password)
                server.send_message(self.message(event))
        except smtplib.SMTPNotSupportedError:
            raise Undelivered(
                f"{self.address} does not offer STARTTLS", hint="use port 465, or add starttls=0 to send unprotected"
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            raise Undelivered(
                mask(f"{self.address} did not take the mail: {error}"), hint="check server, port and login"
            ) from None

    def message(self, event: AlertEvent) -> EmailMessage:
        """Return the mail."""
        mail = EmailMessage()
        mail["Subject"] = mask(" ".join(f"[ematix-flow] {alert_title(event)}".split()))
        mail["From"] = self.from_addr
        mail["To"] = ", ".join(self.to)
        mail["Date"] = format_datetime(event.timestamp)
        mail["Message-ID"] = make_msgid(domain="ematix-flow.invalid")
        mail["References"] = _thread_of(event)
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(mask("\n".join(alert_lines(event))) + "\n")
        return mail

    def _connected(self) -> smtplib.SMTP:
        if self.port == TLS_PORT:
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self._timeout, context=self._context())
        return smtplib.SMTP(self.host, self.port, timeout=self._timeout)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._ca_file)


def from_url(url: str) -> EmailAlerter:
    """Return the alerter of `email://[user[:password]@]host[:port]?to=a,b[&from=c][&starttls=0][&ca=FILE]`."""
    parts = urls.split(url)
    urls.refuse_parameters(parts, _PARAMETERS, of="email://")
    port = parts.port or str(SUBMISSION_PORT)
    if not port.isdigit():
        raise ConfigError(
            "the port of an email alerter is a number", hint="587 is usual, 465 speaks TLS from the start"
        )
    return EmailAlerter(
        parts.host.strip("[]"),
        int(port),
        username=parts.user or None,
        password=parts.password or None,
        from_addr=parts.params.get("from"),
        to=[address.strip() for address in parts.params.get("to", "").split(",") if address.strip()],
        use_starttls=parts.params.get("starttls", "1").lower() not in _OFF,
        ca_file=parts.params.get("ca"),
    )


def _thread_of(event: AlertEvent) -> str:
    began = event.since or event.timestamp
    digest = hashlib.sha256(f"{event.pipeline} {began.isoformat()}".encode()).hexdigest()[:24]
    return f"<{digest}@ematix-flow.invalid>"


def _host_name() -> str:
    name = socket.gethostname()
    return name if name.isascii() and name else "localhost"
