"""Frames whose heads cost most to read, of all that a stranger may send."""

from __future__ import annotations

from fedincentive.plugins import network_json
from fedincentive.plugins.fedml import wire

from fedincentive.messages import Broadcast, Report


def framed(head: bytes) -> bytes:
    return wire.PREFIX.pack(wire.MAGIC, 1, len(head)) + head


def resized(frame: bytes, old: bytes, new: bytes) -> bytes:
    """A frame whose head says something else, with the right length of it."""
    magic, version, length = wire.PREFIX.unpack_from(frame)
    head, arrays = frame[wire.PREFIX.size :][:length], frame[wire.PREFIX.size + length :]
    assert old in head
    head = head.replace(old, new, 1)
    return wire.PREFIX.pack(magic, version, len(head)) + head + arrays


def crowded(item: bytes, marks: int) -> bytes:
    """A broadcast whose settings hold as many of an item as may come; `marks` are its commas, colons and brackets."""
    many = b",".join([item] * ((network_json.MOST_ITEMS - 40) // marks))
    frame = wire.encode(Broadcast("run", 0, 0, "train", None, {}, {"x": "here"}))
    return resized(frame, b'"here"', b"[" + many + b"]")


def worst() -> dict[str, bytes]:
    """What costs most of all that is short enough to be read."""
    report, room = wire.encode(Report("run", 0, "contribute", "name")), network_json.MOST_BYTES - 1000
    shapes = b",".join(b'["%x","<f4",[0]]' % i for i in range((network_json.MOST_ITEMS - 40) // 5))
    names = b",".join(b'"%d":1' % i for i in range((network_json.MOST_ITEMS - 40) // 2))
    empty = wire.encode(Broadcast("run", 0, 0, "train", {}, {}, {"x": 7}))
    return {
        "lists": crowded(b"[]", 2),
        "nested lists": crowded(b"[[[[]]]]", 5),
        "objects": crowded(b'{"a":{}}', 4),
        "numbers": crowded(b"0.1", 1),
        "arrays": resized(empty, b'"arrays": []', b'"arrays": [' + shapes + b"]"),
        "names": resized(empty, b'"s": {}', b'"s": {' + names + b"}"),
        "a long name": resized(report, b"name", b"n" * room),
        "a long name in escapes": resized(report, b"name", b"\\ud83d\\ude00" * (room // 12)),
        "digits": resized(report, b'"s": null', b'"s": ' + b"1" * room),
        "digits of a float": resized(report, b'"s": null', b'"s": 0.' + b"1" * room),
        "brackets": framed(b"[" * network_json.MOST_ITEMS),
        "60 MB of lists": framed(b"[" + b"[]," * (20 * 2**20) + b"0]"),
        "too many lists": framed(b"[" + b",".join([b"[]"] * network_json.MOST_ITEMS) + b"]"),
    }
