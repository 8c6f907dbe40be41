"""Ed25519 signatures checked in plain Python (RFC 8032, section 5.1.7), for those who trust or have no library.

Strict: `s` and the key have one encoding each, and keys of small order, for which anybody can sign, are refused. The
equation is the one without cofactor, byte for byte, as OpenSSL checks it. It holds no secret, so its time may tell.
"""

from __future__ import annotations

from hashlib import sha512

Point = tuple[int, int, int, int]  # X, Y, Z, T with x = X/Z, y = Y/Z, xy = T/Z

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)
ZERO: Point = (0, 1, 1, 0)


def ready(a: Point) -> Point:
    """A point as `add` wants its second term: the sums and products that every addition of it needs, made once."""
    return (a[1] - a[0]) % P, (a[1] + a[0]) % P, 2 * a[2] % P, 2 * D * a[3] % P


def add(a: Point, b: Point) -> Point:
    """a + b, where b was made `ready`."""
    x, y, z, t = a
    u, v, w, r = (y - x) * b[0], (y + x) * b[1], z * b[2], t * b[3]
    e, f, g, h = (v - u) % P, (w - r) % P, (w + r) % P, (v + u) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def double(a: Point) -> Point:
    x, y, z, _ = a
    xx, yy = x * x, y * y
    h, g = (xx + yy) % P, (xx - yy) % P
    e, f = (h - (x + y) ** 2) % P, (2 * z * z + g) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def negative(a: Point) -> Point:
    return -a[0] % P, a[1], a[2], -a[3] % P


def decode(text: bytes) -> Point | None:
    """The point of an encoding, or None when there is none or when it is not the point's only encoding."""
    y, sign = int.from_bytes(text, "little") & (2**255 - 1), text[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if y >= P or (x * x - square) % P or (x == 0 and sign):
        return None
    x = x if x & 1 == sign else P - x
    return x, y, 1, x * y % P


def key_point(key: bytes) -> Point | None:
    """The point of a public key that may be used: canonical, on the curve, not of small order."""
    point = decode(key) if isinstance(key, bytes) and len(key) == 32 else None
    eightfold = double(double(double(point))) if point else ZERO
    return point if eightfold[0] % P else None


def odd_multiples(a: Point, width: int) -> list[Point]:
    multiples, twice = [a], ready(double(a))
    for _ in range(2 ** (width - 2) - 1):
        multiples.append(add(multiples[-1], twice))
    return multiples


def digits(scalar: int, width: int) -> dict[int, int]:
    """scalar = sum of digit * 2**place; the digits are odd, below 2**(width-1), and at least `width` places apart."""
    found, place = {}, 0
    while scalar:
        if scalar & 1:
            digit = (scalar + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)
            found[place] = digit
            scalar -= digit
        scalar, place = scalar >> 1, place + 1
    return found


def both_signs(multiples: list[Point]) -> dict[int, Point]:
    """Each odd digit with what it adds."""
    signed = {2 * k + 1: a for k, a in enumerate(multiples)}
    return {digit: ready(a) for digit, a in [*signed.items(), *((-d, negative(a)) for d, a in signed.items())]}


BASE = decode(bytes([0x58] + 31 * [0x66]))
assert BASE is not None
BASE_MULTIPLES = both_signs(odd_multiples(BASE, 8))


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is the key's owner's over `message`."""
    point = key_point(key)
    if point is None or not isinstance(signature, bytes) or len(signature) != 64:
        return False
    s = int.from_bytes(signature[32:], "little")
    if s >= ORDER:
        return False
    k = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % ORDER
    of_base, of_key = digits(s, 8), digits(k, 5)
    key_multiples = both_signs(odd_multiples(negative(point), 5))
    total = ZERO  # s B - k A, both at once from the highest place down
    for place in range(max([0, *of_base, *of_key]), -1, -1):
        total = double(total)
        if place in of_key:
            total = add(total, key_multiples[of_key[place]])
        if place in of_base:
            total = add(total, BASE_MULTIPLES[of_base[place]])
    inverse = pow(total[2], -1, P)
    x, y = total[0] * inverse % P, total[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little") == signature[:32]
