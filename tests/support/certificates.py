"""A certificate authority of a test's own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


class Authority:
    """Writes ca.pem into its folder, and NAME.pem with NAME.key for whoever asks."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.ca = folder, folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"authority {folder.name}")])
        self._write("ca", self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))

    def issue(self, name: str, address: str = "127.0.0.1", *, days: int = 1) -> dict[str, str]:
        """The three settings of a rank at this address."""
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        where = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        self._write(name, subject, ec.generate_private_key(ec.SECP256R1()), where, days)
        files = {"ca": self.ca, "certificate": self.folder / f"{name}.pem", "key": self.folder / f"{name}.key"}
        return {f"tls_{kind}": str(path) for kind, path in files.items()}

    def _write(
        self, name: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, what: x509.ExtensionType, days: int = 1
    ) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        signed = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - 3 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(what, critical=name == "ca")
            .sign(self._key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        (self.folder / f"{name}.pem").write_bytes(signed.public_bytes(pem))
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
