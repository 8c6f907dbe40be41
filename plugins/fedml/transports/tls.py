"""TLS for the gRPC link: every rank listens and calls, so every rank has a certificate of the run's own authority.

What is wrong with the files is said at the start, by a handshake of this rank with itself; gRPC would only say that
nobody answers.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from ....errors import SettingError
from ..settings import FedmlSettings

FILES = ("tls_ca", "tls_certificate", "tls_key")


@dataclass(frozen=True)
class Tls:
    """PEM bytes: the authority's certificate, this rank's own, and its key."""

    ca: bytes
    certificate: bytes
    key: bytes
    mutual: bool

    def listening(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self.key, self.certificate)], self.ca, self.mutual)

    def calling(self) -> grpc.ChannelCredentials:
        own = (self.key, self.certificate) if self.mutual else (None, None)
        return grpc.ssl_channel_credentials(self.ca, *own)


def read(host: FedmlSettings, address: str) -> Tls | None:
    """What the settings say, for the rank at this address; None where they ask for no TLS."""
    files = {name: getattr(host, name) for name in FILES}
    if not any(files.values()):
        return None
    missing = [name for name, path in files.items() if not path]
    if missing:
        raise SettingError(f"incentive.{missing[0]} is not given: TLS needs {', '.join(FILES)}, in all ranks.")
    content = {name: _content(name, path) for name, path in files.items()}
    _try_out(host, address)
    return Tls(content["tls_ca"], content["tls_certificate"], content["tls_key"], host.tls_mutual)


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"incentive.{name}: {path} cannot be read ({error.strerror}).") from None


def _try_out(host: FedmlSettings, address: str) -> None:
    listening, calling = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    listening.verify_mode = ssl.CERT_REQUIRED if host.tls_mutual else ssl.CERT_NONE
    for context in (listening, calling):
        try:
            context.load_verify_locations(host.tls_ca)
        except ssl.SSLError as error:
            raise SettingError(f"incentive.tls_ca: {host.tls_ca} holds no PEM certificate ({error.reason}).") from None
        try:
            context.load_cert_chain(str(host.tls_certificate), host.tls_key, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            raise SettingError(
                f"incentive.tls_certificate, incentive.tls_key: {host.tls_certificate} and {host.tls_key} are not a "
                f"PEM certificate and its key without a password ({getattr(error, 'reason', error)})."
            ) from None
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    name = address.rsplit(":", 1)[0].strip("[]")
    ends = calling.wrap_bio(back, there, server_hostname=name), listening.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                why = getattr(error, "verify_message", None) or error.reason
                raise SettingError(
                    f"incentive.tls_certificate: {host.tls_certificate} would not be accepted for {name} by who trusts "
                    f"{host.tls_ca} ({why}). It needs the address in grpc_ipconfig.csv as a subject alternative name."
                ) from None
