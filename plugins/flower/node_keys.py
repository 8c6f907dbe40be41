"""Agents' names bound to Flower's own node keys, instead of to a second secret.

    [tool.flwr.app.config.incentive.node-keys]
    hospital-a = "ecdsa-sha2-nistp384 AAAA..."      # the line that ssh-keygen -t ecdsa -b 384 writes into KEY.pub

Flower's SuperNodes sign their requests (`--auth-supernode-private-key`) and the SuperLink tells whose key a node has:
an agent is then whoever the SuperLink says holds its key. That is the SuperLink's word, not a signature in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.serverapp import Grid

from ...checks import nearest, shown
from ...errors import SettingError

PEM, WHOLE = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo


class NodeKeys:
    """Which agent's node has which key; `given` is incentive.node-keys."""

    def __init__(self, grid: Grid, given: Mapping[str, str]) -> None:
        if not hasattr(grid, "get_nodes"):
            raise SettingError(
                "incentive.node-keys: this Flower does not tell a ServerApp the nodes' keys. Use 1.41 or later, or "
                "fedincentive's own keys (incentive.keys)."
            )
        self._grid = grid
        self._keys = {agent: _read(f"incentive.node-keys.{agent}", line) for agent, line in given.items()}

    def wrong_with(self, agent: str, node: int) -> str:
        """Why this node may not speak for the agent, or nothing."""
        if agent not in self._keys:
            return f"agent {shown(agent)} has no key in incentive.node-keys.{nearest(agent, self._keys)}"
        held = next((bytes(info.public_key) for info in self._grid.get_nodes() if info.node_id == node), b"")
        if held.strip() == self._keys[agent]:
            return ""
        whose = next((name for name, key in self._keys.items() if key == held.strip()), None)
        has = "no key that the SuperLink tells" if not held else f"that of {whose!r}" if whose else "another"
        return (
            f"agent {agent!r} is bound to a key by incentive.node-keys, and this node has {has}: start it with "
            "--auth-supernode-private-key and the key that belongs to the agent."
        )


def _read(name: str, line: Any) -> bytes:
    """A public key as the SuperLink writes it."""
    try:
        key = serialization.load_ssh_public_key(str(line).encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise SettingError(
            f'{name} must be an ECDSA public key such as "ecdsa-sha2-nistp384 AAAA..." (the .pub file that ssh-keygen '
            f"-t ecdsa -b 384 makes), not {shown(line)}."
        )
    return key.public_bytes(PEM, WHOLE).strip()
