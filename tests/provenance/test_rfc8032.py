"""The plain Python verifier says what OpenSSL says, except for keys that anybody can sign for."""

from __future__ import annotations

import random
from hashlib import sha512

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedincentive.errors import ProvenanceError
from fedincentive.provenance.keys import PublicKey
from fedincentive.provenance.rfc8032 import ORDER, verify

# private key, message, signature: RFC 8032, section 7.1
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        b"",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
        "655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        b"\x72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        b"\xaf\x82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
    (
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        sha512(b"abc").digest(),
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17a"
        "d9bef1177331a704",
    ),
]
# Every encoding, canonical or not, of the eight points of small order.
Y_OF_ORDER_8 = (
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
)
PLAIN = [
    "01" + 31 * "00",
    "ec" + 30 * "ff" + "7f",
    32 * "00",
    *Y_OF_ORDER_8,
    "ed" + 30 * "ff" + "7f",
    "ee" + 30 * "ff" + "7f",
]
SMALL_ORDER = [bytes.fromhex(text) for text in PLAIN]
SMALL_ORDER += [key[:31] + bytes([key[31] | 0x80]) for key in SMALL_ORDER]


def openssl(key: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.parametrize("secret, message, signature", VECTORS)
def test_the_vectors_of_the_rfc(secret: str, message: bytes, signature: str) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).public_key().public_bytes_raw()
    assert verify(key, bytes.fromhex(signature), message)
    assert not verify(key, bytes.fromhex(signature), message + b" ")


def test_it_agrees_with_openssl_on_valid_and_mutated_signatures() -> None:
    draw = random.Random(1)
    accepted = 0
    for k in range(2000):
        private = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32))
        parts = [private.public_key().public_bytes_raw(), b"", draw.randbytes(draw.randrange(200))]
        parts[1] = private.sign(parts[2])
        if k % 4:
            mutate(parts, draw, k % 4)
        expected = openssl(*parts)
        assert verify(*parts) == expected, parts
        accepted += expected
    assert accepted == 500  # the valid ones, and no other


def mutate(parts: list[bytes], draw: random.Random, way: int) -> None:
    """One bit somewhere; a scalar that is the same modulo the order; a piece of the signature replaced or cut off."""
    key, signature, message = parts
    if way == 1:
        which = draw.choice([0, 1, 2] if message else [0, 1])
        place = draw.randrange(len(parts[which]))
        parts[which] = (
            parts[which][:place] + bytes([parts[which][place] ^ 1 << draw.randrange(8)]) + parts[which][place + 1 :]
        )
    elif way == 2:
        s = int.from_bytes(signature[32:], "little") + ORDER * draw.randrange(1, 8)
        parts[1] = signature[:32] + s.to_bytes(32, "little")
    else:
        small = draw.choice(SMALL_ORDER)
        parts[1] = draw.choice(
            [small + signature[32:], signature[:32] + bytes(32), signature[:-1], signature + b"\0", b""]
        )


def test_keys_of_small_order_are_refused_though_openssl_takes_them() -> None:
    identity, zero = SMALL_ORDER[0], bytes(32)
    fooled = 0
    for key in SMALL_ORDER:
        for k in range(16):
            forged = draw_forgery(k, identity, zero)
            fooled += openssl(key, forged, b"pay %d" % k)
            assert not verify(key, forged, b"pay %d" % k)
        with pytest.raises(ProvenanceError, match="not a safe Ed25519 key"):
            PublicKey("mallory", key)
    assert fooled > 16  # without any secret


def draw_forgery(k: int, identity: bytes, zero: bytes) -> bytes:
    return SMALL_ORDER[k % len(SMALL_ORDER)] + zero if k % 2 else identity + zero


@pytest.mark.parametrize(
    "key", [b"", bytes(31), bytes(33), None, "x" * 32, 7, b"\xff" * 32, (2).to_bytes(32, "little")]
)
def test_what_is_no_key_is_refused(key: object) -> None:
    assert not verify(key, bytes(64), b"")  # type: ignore[arg-type]
    with pytest.raises(ProvenanceError):
        PublicKey("x", key)  # type: ignore[arg-type]
