"""Things by name, whatever they are and whoever offers them."""

from __future__ import annotations

import doctest

import pytest
from packages import install

from fedincentive import registry
from fedincentive.errors import SettingError

CODE = "class Kind: pass\nONE = Kind()\n"
POINTS = "[example.things]\nkind = things_of_others:Kind\none = things_of_others:ONE\nours = things_of_others:ONE\n"
BROKEN = "[example.things]\nbroken = broken_things:ONE\nabsent = things_of_others:TWO\n"


@pytest.fixture
def things(tmp_path, monkeypatch) -> registry.Registry:
    install(tmp_path, "things_of_others", CODE, POINTS)
    install(tmp_path, "broken_things", "raise RuntimeError('no licence')\n", BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return registry.Registry("example.things", {"zero": 0, "ours": 1}, "thing")


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(registry)
    assert result.attempted > 0 and result.failed == 0


def test_classes_and_instances_of_others_come_after_ours(things) -> None:
    assert things.names() == ["zero", "ours", "absent", "broken", "kind", "one"]
    assert isinstance(things.find("one"), things.find("kind"))
    assert things.find("ours") == 1 and things.find("zero") == 0
    assert (things.whose("one"), things.whose("ours")) == ("Thing 'one' (things_of_others:ONE)", "Thing 'ours'")


def test_what_cannot_be_found_or_loaded_is_named(things) -> None:
    for name, message in (
        ("onne", "There is no thing 'onne'. Did you mean 'one'?"),
        ("broken", r"Thing 'broken' \(broken_things:ONE\) cannot be loaded: no licence."),
        ("absent", r"Thing 'absent' \(things_of_others:TWO\) cannot be loaded: .*'TWO'"),
    ):
        with pytest.raises(SettingError, match=message):
            things.find(name)
