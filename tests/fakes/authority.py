"""A certificate authority of a test, and a server on loopback that shows a certificate of it."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "an authority of a test"
SERVER = ipaddress.ip_address("127.0.0.1")


class Authority:
    """`file` is what a client must trust; `server_side` is for a server that is 127.0.0.1, or the host of that name."""

    def __init__(self, folder: Path, host: str | None = None) -> None:
        self.file = folder / "authority.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        own = self._certificate(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))
        self.server_side = self._server_side(
            folder / "server.pem", x509.DNSName(host) if host else x509.IPAddress(SERVER)
        )

    def _server_side(self, file: Path, server: x509.GeneralName) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server of a test")])
        certificate = self._certificate(name, key, x509.SubjectAlternativeName([server]))
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(secret + certificate.public_bytes(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        dated = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        return dated.add_extension(extension, critical=True).sign(self._key, hashes.SHA256())
