"""Certificates for one test run: an authority, a server on loopback, a client."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from tests.services.server import ServiceMissing


def make(folder: Path) -> None:
    """`ca.pem`, and for server and client a `.pem` with the certificate and a `.key` beside it."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as missing:
        raise ServiceMissing("certificates are made with the package cryptography; run: make setup") from missing
    now = datetime.datetime.now(datetime.timezone.utc)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of the tests")])

    def issued(name: str, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> x509.Certificate:
        subject = authority if is_authority else x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        loopback = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(loopback), critical=False)
            .sign(authority_key, hashes.SHA256())
        )

    _write(folder / "ca.pem", issued("", authority_key, is_authority=True), None)
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder / f"{name}.pem", issued(name, key, is_authority=False), key)


def _write(path: Path, certificate: object, key: object) -> None:
    from cryptography.hazmat.primitives import serialization as forms

    path.write_bytes(certificate.public_bytes(forms.Encoding.PEM))  # type: ignore[attr-defined]
    if key is not None:
        text = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())  # type: ignore[attr-defined]
        path.with_suffix(".key").write_bytes(text)
