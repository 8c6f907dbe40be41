"""Audits at sites with real records: what was not committed, repeated, invalid, unknown or not trained on is found."""

from __future__ import annotations

import base64
import dataclasses
import hmac
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keyring import ring_of
from table import BLIND, opened, play

from fedincentive import ledger
from fedincentive.agent import Agent, Notary, SoftmaxSite
from fedincentive.audit import Auditor, Delivery, examine
from fedincentive.errors import BroadcastRefused, SettingError
from fedincentive.identity import digest
from fedincentive.ledger import standalone
from fedincentive.ledger.export import to_jsonl
from fedincentive.ledger.verify import verify
from fedincentive.provenance import beacon
from fedincentive.provenance.records import Commitment, enrolled_tags, order, order_seed, tag_key
from fedincentive.settings import Settings

AGENTS, AUDITORS = ("ada", "bob", "cyd"), ("x", "y", "z")
SETTINGS = Settings.read({"mechanism": "fedavg", "rounds": 3, "auditors": AUDITORS, "openings": 4, "epochs": 2})
DRAW = np.random.default_rng(5)
KEY = b"a key of the sites and the auditors"
ORDER, OPEN = "ab" * 32, "cd" * 32


def site_of(name: str, count: int = 60, shared: int = 0) -> SoftmaxSite:
    """The site of an agent; its last `shared` records are the last ones of ada's."""
    draw = np.random.default_rng(AGENTS.index(name))
    x, y = draw.normal(size=(count, 4)), draw.integers(0, 3, count)
    if shared:
        other = np.random.default_rng(0)
        x[-shared:], y[-shared:] = other.normal(size=(count, 4))[-shared:], other.integers(0, 3, count)[-shared:]
    return SoftmaxSite(name, x, y, 3, SETTINGS, held_out=(x[:5], y[:5]))


def case(count: int = 40, **changes: Any) -> tuple[Delivery, SoftmaxSite, Commitment]:
    """An honest delivery of the first `count` records, with its site."""
    site = site_of("ada")
    kept = Commitment.to(site.records())
    site.reorder(order_seed(ORDER, "ada"))
    w = {name: array + 0.1 for name, array in site.w0.items()}
    update = digest(site.update(w, count, 1, {}))
    scale = SETTINGS.scale
    said = Delivery("ada", 1, w, {}, count * scale, update, 60 * scale, scale, str(kept), ORDER, OPEN, 4)
    return dataclasses.replace(said, **changes), site, kept


def test_an_honest_delivery_passes_and_says_what_was_checked() -> None:
    found = examine(*case())
    assert found.passed and found.opened == 4
    assert [line.split(",")[0][:30] for line in found.checked] == [
        "the site has the 60 points tha", "the first 40 of the order are ", "the update", "4 drawn records were opened"
    ]  # fmt: skip
    assert examine(*case(0)).opened == 0  # nobody has to deliver anything


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delivered": 41 * SETTINGS.scale}, "made again, the update is"),
        ({"delivered": 39 * SETTINGS.scale}, "made again, the update is"),
        ({"delivered": 61 * SETTINGS.scale, "s_max": 61 * SETTINGS.scale}, "the site has 60 points, 61 were enrolled"),
        ({"delivered": 61 * SETTINGS.scale}, "61 points are said, enrolled were 60"),
        ({"delivered": SETTINGS.scale // 2}, "the site gives whole ones"),
        ({"update": "0" * 64}, "made again"),
        ({"order": "00" * 32}, "made again"),  # other records than the first of the drawn order
        ({"step": 2}, "made again"),  # another seed
        ({"commitment": None}, "none were committed"),
        ({"commitment": "records/1:60:" + "0" * 64}, "does not have the commitment"),
    ],
)
def test_what_was_not_delivered_fails(changes: dict[str, Any], words: str) -> None:
    said, site, kept = case()
    found = examine(dataclasses.replace(said, **changes), site, kept)
    assert not found.passed and words in found.why


def test_a_changed_record_fails_only_when_it_is_used() -> None:
    said, site, kept = case()
    used, unused = (int(j) for j in order(order_seed(ORDER, "ada"), 60)[[39, 40]])
    site.x[unused] += 1.0
    assert examine(said, site, kept).passed
    site.x[used] += 1e-9
    assert examine(said, site, kept).why == f"record {used} is not the one that was committed"


def test_a_record_that_is_there_twice_fails() -> None:
    first, second = (int(j) for j in order(order_seed(ORDER, "ada"), 60)[[3, 7]])
    site = site_of("ada")
    site.x[second], site.y[second] = site.x[first], site.y[first]
    said, _, _ = case()
    kept = Commitment.to(site.records())
    found = examine(dataclasses.replace(said, commitment=str(kept)), site, kept)
    assert found.why == f"record {second} is record {first} again"


def test_the_predicate_and_the_sources_decide() -> None:
    said, site, kept = case()
    assert examine(said, site, kept, valid=lambda record: len(record) == 40).passed
    assert "is not valid" in examine(said, site, kept, valid=lambda record: len(record) < 40).why
    shown: list[int] = []

    def knows(agent: str, index: int, record: bytes) -> bool:
        shown.append(index)
        return record == site.records()[index]

    assert examine(said, site, kept, recognised=knows).passed
    first = order(order_seed(ORDER, "ada"), 60)[:40].tolist()
    assert shown == [first[k] for k in beacon.some(OPEN, "open\nada", 40, 4)] and len(set(shown)) == 4
    found = examine(said, site, kept, recognised=lambda agent, index, record: index != shown[2])
    assert found.why == f"record {shown[2]} is not what its source says"


def test_a_site_that_cannot_be_audited_fails_with_the_reason() -> None:
    said, site, kept = case()
    site.records = lambda: (_ for _ in ()).throw(PermissionError("the door\nis shut"))
    found = examine(said, site, kept)
    assert found.why == "the site cannot be audited: PermissionError: the dooris shut"


# Whole runs on real data


class Runs:
    def __init__(
        self, folder: Path, *, fakes: int = 0, lazy: str | None = None, shared: int = 0, hides: bool = False,
        **changes: Any,
    ) -> None:  # fmt: skip
        ring = ring_of((*AGENTS, *AUDITORS))
        if shared:
            (folder / "tags.key").write_text(KEY.hex())
            changes["tags"] = str(folder / "tags.key")
        settings = dataclasses.replace(SETTINGS, run="test", **changes)
        self.sites = {name: site_of(name, shared=shared * (name == "bob")) for name in AGENTS}
        shown = {name: site.records() for name, site in self.sites.items()}
        shown["bob"] = [record + b"!" for record in shown["bob"]] if hides else shown["bob"]
        kept = {name: Commitment.to(site.records()) for name, site in self.sites.items()}
        fake = set(range(fakes))
        agents = [
            Agent(
                name,
                site_of(name, shared=shared * (name == "bob")),
                s0=60.0,
                lies="under-train" if name == lazy else None,
                notary=Notary.of(ring, name, chain=settings.chain),
                commitment=str(kept[name]),
                tags=enrolled_tags(KEY, shown[name]) if shared else None,
            )
            for name in AGENTS
        ]
        auditors = [
            Auditor.of(
                ring, name, self.sites.__getitem__, commitments=kept.__getitem__,
                recognised=lambda agent, index, record: agent != "bob" or index not in fake,
                tag_key=tag_key(settings.tags) if shared else None,
            )
            for name in AUDITORS
        ]  # fmt: skip
        self.book = ledger.open(folder / "l.db")
        self.center = opened(settings, "fedavg", agents, agents[0].site.w0, self.book, None, keys=ring, oracles=BLIND)
        play(self.center, [*agents, *auditors])
        assert verify(self.book, recompute=True).clean and not standalone.check(list(to_jsonl(self.book)))[0]
        self.agents = agents


def test_the_order_is_drawn_after_the_commitment_and_the_same_for_everybody(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.center.run.failed == {}
    drawn = {agent.notary.order for agent in runs.agents}
    assert len(drawn) == 1
    for agent in runs.agents:
        expected = order(order_seed(drawn.copy().pop(), agent.name), 60)
        assert agent.site.order.tolist() == expected.tolist() != site_of(agent.name).order.tolist()


def test_one_who_trains_on_half_of_its_records_is_found(tmp_path: Path) -> None:
    assert Runs(tmp_path, lazy="cyd").center.run.failed == {"cyd": 0}


def test_invented_records_are_found_when_they_are_opened(tmp_path: Path) -> None:
    """All of bob's are invented, so the first opening shows it."""
    assert Runs(tmp_path, fakes=60).center.run.failed == {"bob": 0}


def test_records_that_another_site_has_do_not_count_at_the_later_one(tmp_path: Path, caplog: Any) -> None:
    runs = Runs(tmp_path, shared=12, mechanism="2p-upbred", payment="contribution", beta=Fraction(1))
    assert runs.center.run.failed == {} and runs.center.run.s_max["bob"] == 48 * SETTINGS.scale
    agreed = next(runs.book.entries("test")).entry.inputs["terms"]["agents"]
    assert agreed["bob"]["duplicates"] == {"ada": 12} and agreed["bob"]["enrolled"] == 60 * SETTINGS.scale
    assert "duplicates" not in agreed["ada"] and "enrolled" not in agreed["cyd"]
    own = [hmac.new(KEY, one, "sha256").digest()[:12] for one in runs.sites["bob"].records()]
    assert agreed["bob"]["tags"] == sha256(base64.b64encode(b"".join(own))).hexdigest()
    assert caplog.text.count("counts with") == 2 and "12 of ada" in caplog.text  # the center and bob are told
    given = [e.inputs["said"] for e in (r.entry for r in runs.book.entries("test")) if e.kind == "reports-train"]
    assert all(said["bob"]["delivered"] == 48 * SETTINGS.scale for said in given)
    assert all(one["tags"] is None for one in runs.center.run.enrolled.values())  # the lists are gone


def test_a_site_that_enrols_with_other_tags_than_of_its_records_fails(tmp_path: Path) -> None:
    runs = Runs(tmp_path, shared=12, hides=True)
    assert runs.center.run.s_max["bob"] == 60 * SETTINGS.scale  # nobody could know
    assert runs.center.run.failed == {"bob": 0}
    memo = next(e for e in (r.entry for r in runs.book.entries("test")) if e.kind == "audit-0")
    why = [one["why"] for item in memo.inputs["heard"] for one in item["verdicts"] if one["agent"] == "bob"]
    assert set(why) == {"the tags that were enrolled are not those of the site's records"}


def test_a_site_with_nothing_of_its_own_is_left_out_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="All records of agent 'bob' are others' too .60 of ada.*leave it out"):
        Runs(tmp_path, shared=60)


@pytest.mark.parametrize("tags", [None, "", "AAAA", enrolled_tags(KEY, [b"a"] * 59), "x"])
def test_tags_are_of_every_record_at_every_site(tmp_path: Path, tags: str | None) -> None:
    ring, settings = ring_of((*AGENTS, *AUDITORS)), dataclasses.replace(SETTINGS, tags="key")
    agents = [
        Agent(name, site_of(name), s0=60.0, notary=Notary.of(ring, name, chain=("run", 3)), commitment=text, tags=given)
        for name, text, given in zip(
            AGENTS,
            ("records/1:60:" + "0" * 64,) * 3,
            (enrolled_tags(KEY, [b"%d" % i for i in range(60)]), tags, "-"),
            strict=True,
        )
    ]
    with ledger.open(tmp_path / "l.db") as book:
        with pytest.raises(SettingError, match="'bob' enrols with .* tags for 60.0 records: incentive.tags must name"):
            opened(settings, "fedavg", agents, agents[0].site.w0, book, None, keys=ring)
        with pytest.raises(SettingError, match="incentive.tags must name the common key at every site, or nowhere"):
            opened(SETTINGS, "fedavg", agents, agents[0].site.w0, book, None, keys=ring)
        with pytest.raises(SettingError, match="incentive.tags are checked by auditors"):
            bare = dataclasses.replace(settings, auditors=None)
            opened(bare, "fedavg", agents, agents[0].site.w0, book, None, keys=ring)


@pytest.mark.parametrize("found", [{"ada": 0}, {"ada": -5}, {"ada": 60}, {"ada": 1.5}, {"ada": True}])
def test_no_agent_signs_terms_that_count_its_records_wrongly(tmp_path: Path, found: dict[str, Any]) -> None:
    ring, settings = ring_of((*AGENTS, *AUDITORS)), dataclasses.replace(SETTINGS, tags="key")
    shown = {name: site_of(name).records() for name in AGENTS}
    agents = [
        Agent(
            name, site_of(name), s0=60.0, notary=Notary.of(ring, name, chain=("run", 3)),
            commitment=str(Commitment.to(shown[name])), tags=enrolled_tags(KEY, shown[name]),
        )
        for name in AGENTS
    ]  # fmt: skip
    with ledger.open(tmp_path / "l.db") as book:
        center = opened(settings, "fedavg", agents, agents[0].site.w0, book, None, keys=ring)
        agents[1].respond(center.broadcast())  # these it signs
        mine = center.run.terms["agents"]["bob"]
        left = 60 * SETTINGS.scale - int(sum(found.values()) * SETTINGS.scale)
        changed = {**mine, "duplicates": found, "s_max": left, "s0": left, "enrolled": 60 * SETTINGS.scale}
        center.run.terms = {**center.run.terms, "agents": {**center.run.terms["agents"], "bob": changed}}
        center._open_round()
        agents[1].notary.restore({})
        agents[1].notary._state.clear()
        with pytest.raises(BroadcastRefused, match="as copies"):
            agents[1].respond(center.broadcast())


def test_an_enrolment_must_commit_to_as_many_records_as_it_has(tmp_path: Path) -> None:
    ring = ring_of((*AGENTS, *AUDITORS))
    enrolled = [
        Agent(name, site_of(name), s0=60.0, notary=Notary.of(ring, name, chain=("run", 3)), commitment=text)
        for name, text in zip(AGENTS, ("records/1:60:" + "0" * 64, "records/1:61:" + "0" * 64, None), strict=True)
    ]
    with ledger.open(tmp_path / "l.db") as book, pytest.raises(SettingError, match="'bob' enrols with s_max = 60"):
        opened(SETTINGS, "fedavg", enrolled, enrolled[0].site.w0, book, None, keys=ring)
