"""A deployment as hospitals run it: TLS everywhere, SuperNode authentication, names bound to the nodes' keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from parity import ledger_of
from ports import free_port

from fedincentive import ledger
from fedincentive.ledger.verify import verify

pytestmark = pytest.mark.timeout(3600)
PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PRIVATE, PUBLIC = serialization.PrivateFormat.OpenSSH, serialization.PublicFormat.OpenSSH


def key_pair(folder: Path, name: str) -> str:
    """What `ssh-keygen -t ecdsa -b 384` writes: NAME and NAME.pub; returns the line of the public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    (folder / name).write_bytes(key.private_bytes(PEM, PRIVATE, serialization.NoEncryption()))
    line = key.public_key().public_bytes(SSH, PUBLIC).decode()
    (folder / f"{name}.pub").write_text(line + "\n")
    return line


def test_two_sites_with_tls_and_keys_and_a_third_that_takes_a_name(flower: Any, tmp_path: Path) -> None:
    tls = Authority(tmp_path / "tls").issue("superlink")
    lines = {name: key_pair(tmp_path, name) for name in ("north", "south", "thief")}
    bound = "".join(f'{name} = "{lines[name]}"\n' for name in ("north", "south"))
    with open(flower.app / "pyproject.toml", "a") as out:
        out.write(f"\n[tool.flwr.app.config.incentive.node-keys]\n{bound}")
    port = free_port()
    files = f"--ssl-ca-certfile {tls['tls_ca']} --ssl-certfile {tls['tls_certificate']} --ssl-keyfile {tls['tls_key']}"
    listen = f"flower-superlink --host 127.0.0.1 --port {port} --enable-supernode-auth"
    flower.superlink(f"{listen} {files}", port, "secured")
    config = flower.home / ".flwr" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    with open(config, "a") as out:
        out.write(f'\n[superlink.secured]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{tls["tls_ca"]}"\n')

    def join(key: str, agent: str, index: int) -> None:
        flower.run(f"flwr supernode register {tmp_path / key}.pub secured")
        node = f'agent="{agent}" partition-id={index} num-partitions=2 cost=0.5'
        options = f"--root-certificates {tls['tls_ca']} --superlink 127.0.0.1:{port} --port {free_port()}"
        flower.start(
            f"flower-supernode {options} --auth-supernode-private-key {tmp_path / key} --node-config '{node}'", key
        )

    join("thief", "south", 1)  # a registered node, with a name that belongs to another's key
    join("north", "north", 0)
    join("south", "south", 1)
    said = flower.run(
        "flwr run . secured --stream --run-config "
        "'incentive.run=\"tls\" incentive.rounds=2 incentive.join-timeout=240.0 incentive.round-timeout=240.0'"
    )
    assert "2 agents enrolled: north, south" in said and "(2p-upbred) ended: complete" in said
    assert re.search(r"agent 'south' is bound to a key by incentive.node-keys, and this node has another", said)
    assert "has no keys: whoever reaches this server" not in said
    with ledger.read(ledger_of(flower.app, "tls")) as book:
        assert verify(book, recompute=True).clean
