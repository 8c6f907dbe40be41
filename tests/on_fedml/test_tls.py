"""The gRPC link under TLS: who has no certificate of the run's authority is nobody, and the ledger stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from certificates import Authority
from fedincentive.plugins.fedml.settings import FedmlSettings
from fedincentive.plugins.fedml.transports import connect, tls
from fedincentive.plugins.fedml.transports.over_grpc import GrpcTransport
from fedml_runs import grpc_table, write_config
from parity import GAME, INCENTIVE, ROUNDS, head_of, in_engine, ledger_of
from ports import free_port

from fedincentive.errors import SettingError

ADDRESS = "127.0.0.1:1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def link(tmp_path: Path) -> Iterator[Callable[..., GrpcTransport]]:
    """`link(rank, settings)` is an end of one run's link; all are closed at the end."""
    table, opened = str(grpc_table(tmp_path, [free_port() for _ in range(4)])), []

    def open_one(rank: int, **settings: Any) -> GrpcTransport:
        opened.append(GrpcTransport(table, rank, 4, tls=tls.read(FedmlSettings(**settings), ADDRESS)))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize("mutual", [True, False])
def test_both_ways_and_in_parts(authority: Authority, link: Any, mutual: bool) -> None:
    server, client = (link(rank, **authority.issue(f"rank-{rank}"), tls_mutual=mutual) for rank in (0, 1))
    for one, other in ((server, client), (client, server)):
        for frame in (b"small", bytes(9 * 2**20)):
            one.send(other.rank, frame, 60.0)
            item = other.receive(60.0)
            assert item is not None and bytes(item[1]) == frame


def test_a_plaintext_client_is_refused(authority: Authority, link: Any) -> None:
    server, plain = link(0, **authority.issue("rank-0")), link(1)
    with pytest.raises(ConnectionError):
        plain.send(0, b"in the clear", 1.0)
    assert server.receive(0.1) is None


def test_a_plaintext_server_is_refused(authority: Authority, link: Any) -> None:
    server, client = link(0), link(1, **authority.issue("rank-1"))
    with pytest.raises(ConnectionError):
        client.send(0, b"a secret", 1.0)
    assert server.receive(0.1) is None


def test_a_client_without_a_certificate_is_refused_where_both_must_have_one(authority: Authority, link: Any) -> None:
    server = link(0, **authority.issue("rank-0"))
    bare = link(1, **authority.issue("rank-1"), tls_mutual=False)  # it calls without showing its own
    with pytest.raises(ConnectionError):
        bare.send(0, b"who am I", 1.0)
    assert server.receive(0.1) is None


@pytest.mark.parametrize("mutual", [True, False])
def test_another_authority_is_refused(authority: Authority, link: Any, tmp_path: Path, mutual: bool) -> None:
    server = link(0, **authority.issue("rank-0"), tls_mutual=mutual)
    stranger = link(1, **Authority(tmp_path / "other").issue("rank-1"), tls_mutual=mutual)
    with pytest.raises(ConnectionError):
        stranger.send(0, b"trust me", 1.0)
    assert server.receive(0.1) is None
    with pytest.raises(ConnectionError):
        server.send(1, b"the model", 1.0)
    assert stranger.receive(0.1) is None


def test_certificates_tell_senders_of_one_address_apart(authority: Authority, link: Any) -> None:
    """So that each has a place for a large frame of its own."""
    server, *clients = (link(rank, **authority.issue(f"rank-{rank}")) for rank in range(3))
    for client in clients:
        client.send(0, b"hello", 60.0)
    senders = []
    add = server._assembly.add
    server._assembly.add = lambda message, sender: senders.append(sender) or add(message, sender)
    for client in clients:
        client.send(0, bytes(9 * 2**20), 60.0)
    assert len(senders) == 4 and len(set(senders)) == 2 and all("BEGIN CERTIFICATE" in sender for sender in senders)


# What is wrong with the files is said in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tls_key": None}, "incentive.tls_key is not given: TLS needs tls_ca, tls_certificate, tls_key"),
        ({"tls_ca": "nowhere.pem"}, "incentive.tls_ca: nowhere.pem cannot be read .No such file"),
        ({"tls_ca": "text"}, "incentive.tls_ca: .* holds no PEM certificate"),
        ({"tls_certificate": "text"}, "are not a PEM certificate and its key"),
        ({"tls_key": "other key"}, "are not a PEM certificate and its key .*KEY_VALUES_MISMATCH"),
        ({"tls_key": "locked key"}, "without a password"),
        ({"tls_ca": "other authority"}, "would not be accepted for 127.0.0.1 .*unable to get local issuer"),
        ({"tls_certificate": "expired", "tls_key": "expired"}, "would not be accepted .*expired"),
        ({"tls_certificate": "elsewhere", "tls_key": "elsewhere"}, "would not be accepted for 127.0.0.1 .*mismatch"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(authority: Authority, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    given = authority.issue("rank-0")
    (tmp_path / "text").write_text("not a certificate")
    (tmp_path / "locked").write_bytes(locked(Path(given["tls_key"]).read_bytes()))
    others = {
        "text": dict.fromkeys(given, str(tmp_path / "text")),
        "other key": authority.issue("rank-1"),
        "locked key": {"tls_key": str(tmp_path / "locked")},
        "other authority": Authority(tmp_path / "other").issue("rank-0"),
        "expired": authority.issue("expired", days=-1),
        "elsewhere": authority.issue("elsewhere", "127.0.0.9"),
    }
    changed = {name: others[what][name] if what in others else what for name, what in change.items()}
    with pytest.raises(SettingError, match=words):
        tls.read(FedmlSettings(**{**given, **changed}), ADDRESS)


def locked(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    known = form.load_pem_private_key(key, None)
    return known.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"password"))


def test_other_backends_have_no_tls(authority: Authority) -> None:
    host = FedmlSettings(**authority.issue("rank-0"))
    with pytest.raises(SettingError, match="incentive.tls_ca .* for backend GRPC, not MPI"):
        connect(SimpleNamespace(backend="MPI"), 0, 4, host, lambda: 0)


# A whole run


def test_a_run_under_tls_keeps_the_same_ledger(start: Any, authority: Authority, tmp_path: Path) -> None:
    """Real processes, each with its own certificate; a plaintext client and a stranger's count for nothing."""
    (tmp_path / "game.yaml").write_text(yaml.safe_dump({"game": GAME}))
    cf = write_config(tmp_path, "GRPC", "2p-upbred", rounds=ROUNDS, incentive={**INCENTIVE, "game": "game.yaml"})
    files = {rank: with_tls(cf, rank, authority) for rank in range(4)}
    server = start.rank(tmp_path, files[0], 0)
    server.says("listens on")
    alien = with_tls(cf, 3, Authority(tmp_path / "other"), server_timeout=3.0)
    plain = with_tls(cf, 3, None, server_timeout=3.0)
    for refused in (alien, plain):
        client = start.rank(tmp_path, refused, 3)
        assert client.wait() == 1 and "the server is not there after 3 s" in client.text()
    for process in [server, *(start.rank(tmp_path, files[rank], rank) for rank in (1, 2, 3))]:
        process.ends_well()
    assert head_of(ledger_of(tmp_path)) == in_engine("2p-upbred", tmp_path)


def with_tls(cf: Path, rank: int, authority: Authority | None, **more: Any) -> Path:
    """A copy of a configuration for one rank."""
    values = yaml.safe_load(cf.read_text())
    values["incentive_args"]["incentive"] |= {**({} if authority is None else authority.issue(f"rank-{rank}")), **more}
    path = cf.with_name(f"{rank}-{'plain' if authority is None else authority.folder.name}.yaml")
    path.write_text(yaml.safe_dump(values))
    return path
