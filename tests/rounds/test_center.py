"""The center: what it accepts, who is absent, who is asked, what it aggregates."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import Counter

import numpy as np
import pytest
from keyring import ring_of
from table import BLIND, agents_of, answer, opened, play, play_until, played, set_table

from fedincentive import ledger, mechanisms, payments
from fedincentive.agent import Away
from fedincentive.center import state
from fedincentive.errors import QuorumError, ReportRefused, RunError, SettingError
from fedincentive.game import random_data_value, repaired_example
from fedincentive.ledger.verify import verify
from fedincentive.messages import Enrol, Report
from fedincentive.provenance import beacon
from fedincentive.provenance.keys import KeyRing

W = {"layer": np.zeros((2, 2), np.float32), "bias": np.zeros(2, np.float32)}


def center_of(
    mechanism="fedavg", agents=("a", "b", "c"), w=W, ledger=None, state=None, keys=None, buffers=(), **values
):
    settings = mechanisms.Settings.read({"run": "r", "report_values": False, **values})
    enrolled = [Enrol(name, 10.0, 4.0) for name in agents]
    return opened(settings, mechanism, enrolled, w, ledger, state, keys=keys, buffers=buffers)


def report(center, agent, /, value=1.0, **changes):
    """A good report for the round that is open."""
    b = center.broadcast()
    fields = {}
    if b.phase == "contribute":
        fields = {"s": 5.0}
    elif b.phase == "train":
        update = {name: np.full_like(array, value) for name, array in center.w.items()}
        fields = {"delivered": center.run.limits.get(agent, 1.0), "update": update}
        if center.mechanism.moves:
            fields["s"] = 5.0
    else:
        fields = {"valuation": 1.0}
    return dataclasses.replace(Report(b.run, b.round, b.phase, agent, **fields), **changes)


def close_with(center, *agents):
    for agent in agents:
        assert center.submit(report(center, agent))
    return center.close()


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"agent": "d"}, "Agent 'd' is not enrolled in run 'r'"),
            ({"agent": 7}, "comes from 7: an agent's name is a string"),
            ({"delivered": None}, "Agent 'a' reports no delivered in a train round, which asks for it"),
            ({"delivered": 10.5}, r"Agent 'a' reports delivered = 10.5: it must be between 0 and its s_max = 10.0"),
            ({"delivered": -1e-9}, "delivered = -1e-09: it must be between 0"),
            ({"delivered": float("nan")}, "delivered = nan: it must be finite"),
            ({"delivered": float("inf")}, "delivered = inf: it must be finite"),
            ({"delivered": "10"}, "delivered = '10': it must be a number"),
            ({"delivered": True}, "delivered = True: it must be a number"),
            ({"update": None}, "reports no update in a training round"),
            ({"update": [1, 2]}, "update of type list: send a mapping"),
            ({"update": {"layer": W["layer"]}}, "lacks 'bias'"),
            ({"update": {**W, "more": W["bias"]}}, "has 'more', which the model has not"),
            ({"update": {**W, "bias": np.zeros(3, np.float32)}}, r"'bias' with shape \(3,\): the model has \(2,\)"),
            ({"update": {**W, "bias": np.zeros(2)}}, "'bias' as float64: the model has float32"),
            ({"update": {**W, "bias": [0.0, 0.0]}}, "'bias' as list: send a NumPy array"),
            ({"update": {**W, "bias": np.float32([np.nan, 0])}}, "1 values that are NaN or infinite"),
            ({"update": {**W, "bias": np.float32([np.inf, -np.inf])}}, "2 values that are NaN or infinite"),
            ({"valuation": float("inf")}, "valuation = inf: it must be finite"),
            ({"valuation": 1e300}, "valuation = 1e.300, beyond"),
        ],
    )
    def test_a_bad_training_report(self, changes, message) -> None:
        center = center_of()
        with pytest.raises(ReportRefused, match=message):
            center.submit(report(center, "a", **changes))
        assert center.counts == {"refused": 1}
        assert "a" in center.missing

    @pytest.mark.parametrize(
        ("s", "message"), [(10.1, "s = 10.1"), (-1.0, "s = -1.0"), (None, "reports no s"), (float("nan"), "s = nan")]
    )
    def test_a_contribution_outside_its_range(self, s, message) -> None:
        center = center_of("2p-upbred")
        with pytest.raises(ReportRefused, match=message):
            center.submit(report(center, "a", s=s))

    def test_a_refused_agent_may_mend_its_report_in_time(self) -> None:
        center = center_of()
        with pytest.raises(ReportRefused):
            center.submit(report(center, "a", delivered=99.0))
        assert center.submit(report(center, "a"))

    def test_a_refused_agent_is_absent(self) -> None:
        center = center_of("2p-upbred", beta="2")
        for _ in range(20):
            if center.broadcast().phase == "train":
                break
            for agent in "abc":
                center.submit(report(center, agent, s=10.0))
            center.close()
        with pytest.raises(ReportRefused):
            center.submit(report(center, "a", delivered=float("nan")))
        result = close_with(center, "b", "c")
        assert result.absent == ("a",)
        assert center.run.delivered == {"a": 0, "b": 10 * 10**6, "c": 10 * 10**6}
        assert result.payments["a"] < 0

    def test_numpy_numbers_are_numbers(self) -> None:
        center = center_of("2p-upbred")
        assert center.submit(report(center, "a", s=np.float32(5.5)))
        assert center.submit(report(center, "b", s=np.int64(6)))


class TestWhatIsDropped:
    def test_late_foreign_repeated_and_unasked_reports_are_counted(self) -> None:
        center = center_of(sampled=2)
        asked, other = center.asked, next(name for name in "abc" if name not in center.asked)
        assert center.submit(report(center, asked[0]))
        assert not center.submit(report(center, asked[0]))
        assert not center.submit(report(center, asked[1], run="another"))
        assert not center.submit(report(center, asked[1], round=5))
        assert not center.submit(report(center, asked[1], phase="value"))
        assert not center.submit(report(center, other))
        assert center.counts == {"repeated": 1, "foreign": 1, "late": 2, "unasked": 1}

    def test_nothing_counts_after_the_end(self) -> None:
        center = center_of(rounds=1)
        close_with(center, "a", "b", "c")
        assert center.done and center.broadcast().phase == "done"
        assert not center.submit(Report("r", center.broadcast().round, "done", "a"))
        with pytest.raises(RunError, match="is over"):
            center.close()


class TestEnrolment:
    @pytest.mark.parametrize(
        ("agents", "message"),
        [
            ([Enrol("a", 1.0, 0.0), Enrol("a", 2.0, 0.0)], "Agent 'a' is enrolled twice"),
            ([], "Enrol at least one agent"),
            ([Enrol("treasury", 1.0, 0.0)], "none called 'treasury'"),
            ([Enrol("a", 0.0, 0.0)], "s_max = 0.0 and s0 = 0.0: s_max must be positive"),
            ([Enrol("a", 5.0, 6.0)], "s0 between 0 and s_max"),
            ([Enrol("a", float("inf"), 0.0)], "s_max must be positive"),
            ([Enrol("a", 5.0, float("nan"))], "s0 between 0 and s_max"),
        ],
    )
    def test_what_makes_no_sense(self, agents, message) -> None:
        settings = mechanisms.Settings()
        with pytest.raises(SettingError, match=message):
            opened(settings, "fedavg", agents, W)

    def test_a_single_agent_plays_fedavg_but_no_payments(self) -> None:
        close_with(center_of(agents=("a",), rounds=1), "a")
        with pytest.raises(SettingError, match="with 1 agent"):
            center_of("2p-upbred", agents=("a",))

    def test_the_digest_of_an_agents_data_is_kept_in_the_ledger(self, tmp_path) -> None:
        settings = mechanisms.Settings()
        with ledger.open(tmp_path / "l.db") as book:
            enrolled = [Enrol("a", 5.0, 5.0, "sha256:12ab"), Enrol("b", 5.0, 5.0)]
            opened(settings, "2p-upbred", enrolled, W, book)
            agreed, committed = (record.inputs for record in book.entries())
            assert committed["data"] == {"a": "sha256:12ab"}
            assert agreed["terms"]["agents"]["a"]["data"] == "sha256:12ab"

    def test_a_cost_above_beta_is_named_before_the_first_round(self, caplog) -> None:
        with caplog.at_level(logging.WARNING, "fedincentive"):
            center_of("2p-upbred", beta="2", cost={"a": 0.5, "b": 3.0, "c": 1.0})
        assert (
            "agent b is not sure to give everything" in caplog.text
            and "Above 3 every further point pays" in caplog.text
        )

    def test_a_limit_that_no_decimal_holds_is_met_exactly(self) -> None:
        settings = mechanisms.Settings.read({"beta": "1"})
        third = 2.0 / 3.0
        center = opened(settings, "2p-upbred", [Enrol("a", third, 0.0), Enrol("b", 1.0, 1.0)], W)
        b = center.broadcast()
        center.submit(Report(b.run, b.round, b.phase, "a", s=third))
        center.submit(Report(b.run, b.round, b.phase, "b", s=1.0))
        center.close()
        assert center.broadcast().phase == "train" and center.broadcast().s["a"] == third


class TestWhatIsBroadcast:
    def test_scalar_rounds_carry_no_model_and_s_is_what_was_quantised(self) -> None:
        center = center_of("2p-upbred")
        assert center.broadcast().w is None
        for agent, s in zip("abc", (1.23456789, 10.0, 1e-9), strict=True):
            center.submit(report(center, agent, s=s))
        result = center.close()
        assert center.broadcast().s == {"a": 1.234568, "b": 10.0, "c": 0.0} == result.s
        assert center.broadcast().round == 1 and center.broadcast().step == 0

    def test_the_model_cannot_be_changed_by_those_who_get_it(self) -> None:
        center = center_of()
        with pytest.raises(ValueError, match="read-only"):
            center.broadcast().w["bias"][0] = 1.0

    def test_a_value_exchange_shares_its_training_round(self) -> None:
        center = center_of("t-upbred", rounds=2)
        seen = []
        while not center.done:
            b = center.broadcast()
            seen.append((b.round, b.step, b.phase))
            close_with(center, "a", "b", "c")
        assert seen == [(0, 0, "train"), (0, 0, "value"), (1, 1, "train"), (1, 1, "value")]

    def test_the_order_of_arrival_does_not_matter(self) -> None:
        digests = set()
        for order in ("abc", "cba", "bca"):
            center = center_of(rounds=1)
            for agent in order:
                center.submit(report(center, agent, value={"a": 1e8, "b": 1.0, "c": -1e8}[agent]))
            center.close()
            digests.add(center.outcome.digest)
        assert len(digests) == 1


class TestAbsence:
    def test_in_a_contribute_round_an_absent_agent_keeps_its_s(self) -> None:
        center = center_of("2p-upbred")
        result = close_with(center, "a", "b")
        assert result.absent == ("c",) and center.broadcast().s["c"] == 4.0

    def test_rest_is_not_declared_while_somebody_is_absent(self) -> None:
        center = center_of("fedavg-strategic")
        for agent in "ab":
            center.submit(report(center, agent, s=4.0))
        center.close()
        assert center.broadcast().phase == "contribute"
        for agent in "abc":
            center.submit(report(center, agent, s=4.0))
        center.close()
        assert center.broadcast().phase == "train"

    def test_in_a_training_round_it_has_delivered_nothing_and_is_charged(self, tmp_path) -> None:
        with ledger.open(tmp_path / "l.db") as book:
            center = center_of("fedavg", ledger=book, payment="contribution", beta="2", rounds=2)
            close_with(center, "a", "b", "c")
            result = close_with(center, "a", "b")
            tranche = list(book.entries())[-1]
        assert tranche.inputs["delivered"] == {"a": 10**7, "b": 10**7, "c": 0}
        assert result.payments == {"a": 5 * 10**6, "b": 5 * 10**6, "c": -10 * 10**6}

    def test_absence_unravels_nothing(self) -> None:
        """Were the absent neither paid nor charged, every net payer would stay away; here each loses by it."""
        game = random_data_value(8, 6, 1)
        common = {"beta": "9", "gamma": 9.0, "rounds": 4, "quorum": 0.1}
        everyone = played(game, "2p-upbred", **common)
        for i, name in enumerate(game.agents):
            alone_away = played(game, "2p-upbred", strategies={name: Away()}, **common)
            assert alone_away.utilities[i] < everyone.utilities[i]
            assert sum(alone_away.outcome.payments.values()) == 0

    def test_below_quorum_the_round_is_asked_again_and_then_fails_with_the_names(self) -> None:
        center = center_of(quorum=0.6, repeats=2)
        center.submit(report(center, "b"))
        for _ in range(2):
            result = center.close()
            assert result.repeated and result.absent == ("a", "c") and center.missing == ("a", "c")
        with pytest.raises(QuorumError, match=r"1 of 3 agents answered after 2 repeats.*Absent: a, c\..*resume"):
            center.close()

    def test_a_repeat_that_reaches_the_quorum_goes_on(self) -> None:
        center = center_of(quorum=0.6, repeats=2)
        close_with(center, "b")
        result = close_with(center, "a")
        assert not result.repeated and result.absent == ("c",) and center.run.trained == 1

    @pytest.mark.parametrize(("quorum", "needed"), [(0.01, 1), (0.34, 2), (0.5, 2), (2 / 3, 2), (0.67, 3), (1.0, 3)])
    def test_how_many_a_quorum_is(self, quorum, needed) -> None:
        for answering in range(4):
            center = center_of(quorum=quorum)
            assert close_with(center, *"abc"[:answering]).repeated == (answering < needed)

    def test_too_few_for_trimming_is_no_quorum(self) -> None:
        center = center_of("trim-2p-upbred", agents="abcd", quorum=0.1, repeats=1)
        while center.broadcast().phase == "contribute":
            for agent in "abcd":
                center.submit(report(center, agent, s=10.0))
            center.close()
        assert close_with(center, "a", "b").repeated
        assert not close_with(center, "c").repeated


class TestSampling:
    def test_those_not_asked_keep_what_they_delivered_last(self) -> None:
        center = center_of("fedavg", agents="abcde", sampled=2, rounds=30, payment="contribution")
        last = {agent: 10 * 10**6 for agent in "abcde"}  # before it is asked an agent counts with what it committed
        often = {agent: 0 for agent in "abcde"}
        total = dict.fromkeys("abcde", 0)
        for step in range(30):
            assert len(center.asked) == 2
            for k, agent in enumerate(center.asked):
                points = float((step + k) % 10)
                center.submit(report(center, agent, delivered=points))
                last[agent], often[agent] = int(points) * 10**6, often[agent] + 1
            center.close()
            total = {agent: total[agent] + last[agent] for agent in total}
            assert center.run.delivered == last and center.run.delivered_total == total
        assert all(often.values())
        assert sum(center.outcome.payments.values()) == 0

    def test_who_is_asked_depends_on_the_center_secret_and_step_alone(self) -> None:
        def asked(mechanism, **values):
            center = center_of(mechanism, agents="abcdefgh", sampled=3, rounds=6, **values)
            names = []
            while not center.done:
                if center.broadcast().phase == "train":
                    names.append(center.asked)
                for agent in center.asked:
                    changes = {"s": 10.0} if center.broadcast().phase == "contribute" else {}
                    center.submit(report(center, agent, **changes))
                center.close()
            return names

        assert asked("fedavg", audit_seed=1) == asked("2p-upbred", audit_seed=1) != asked("fedavg", audit_seed=2)
        assert asked("fedavg", seed=5) != asked("fedavg", seed=5)  # what agents know says nothing of it

    def test_everyone_is_asked_as_often_as_anyone_and_any_two_as_any_others(self) -> None:
        center = center_of("fedavg", agents="abcdef", sampled=2, rounds=1500, audit_seed=3)
        drawn = [beacon.asked(link, "abcdef", 2) for link in center._links[:1500]]
        assert drawn[0] == center.asked
        pairs = Counter(drawn)
        assert len(pairs) == 15 and sum((seen - 100) ** 2 / 100 for seen in pairs.values()) < 36.1  # chi2, 0.1 %

    def test_the_link_comes_with_the_question_and_not_before(self) -> None:
        center = center_of("2p-upbred", agents="abcde", sampled=2, rounds=3)
        anchor = center.run.terms["draws"]
        while center.broadcast().phase == "contribute":
            assert center.broadcast().reveal is None
            for agent in center.asked:
                center.submit(report(center, agent, s=10.0))
            center.close()
        for step in range(3):
            link = center.broadcast().reveal
            assert beacon.follows(anchor, link, step + 1)
            # The same bytes in another writing would draw others: a center could choose among many.
            assert not beacon.follows(anchor, link.upper(), step + 1)
            assert center.asked == beacon.asked(link, "abcde", 2)
            for agent in center.asked:
                center.submit(report(center, agent))
            center.close()

    def test_nothing_is_drawn_where_everyone_is_asked(self) -> None:
        for values in ({}, {"sampled": 3}, {"sampled": 9}):
            center = center_of("fedavg", **values)
            assert "draws" not in center.run.terms and center.broadcast().reveal is None
            assert center.asked == ("a", "b", "c")

    def test_contribute_rounds_ask_everyone(self) -> None:
        assert center_of("2p-upbred", sampled=2).asked == ("a", "b", "c")

    def test_one_agent_alone_cannot_be_compared(self) -> None:
        with pytest.raises(SettingError, match="incentive.sampled is 1 with the contribution payment"):
            center_of("2p-upbred", sampled=1)
        center_of("fedavg", sampled=1)  # which pays nothing


class TestSignatures:
    GAME = repaired_example()

    def seated(self, mechanism="upbred", **values):
        self.ring = ring_of(self.GAME.agents)
        return set_table(self.GAME, mechanism, keys=self.ring, oracles=BLIND, rounds=2, beta="0.5", **values)

    def training(self, **values):
        center, agents = self.seated(**values)
        play_until(center, agents, "train")
        return center, agents, [agent.respond(center.broadcast()) for agent in agents]

    def test_signed_reports_count_and_make_the_basis_signed(self) -> None:
        center, agents = self.seated()
        assert play(center, agents).basis == "signed" and not center.counts
        plain = center_of(rounds=1)
        close_with(plain, "a", "b", "c")
        assert plain.outcome.basis == "reported"

    def test_the_run_begins_when_everyone_has_signed_its_terms(self) -> None:
        center, agents = self.seated(repeats=1)
        assert center.broadcast().phase == "accept"
        center.submit(agents[0].respond(center.broadcast()))
        assert center.close().repeated
        with pytest.raises(QuorumError, match="Absent: agent-2"):
            center.close()

    def test_unsigned_reports_and_those_in_another_name_are_refused(self) -> None:
        center, _, (first, second) = self.training()
        with pytest.raises(ReportRefused, match="'agent-1' sent an unsigned report"):
            center.submit(dataclasses.replace(first, signature=None))
        stolen = dataclasses.replace(second, agent="agent-1")
        with pytest.raises(ReportRefused, match="in the name of agent 'agent-1' is not signed with its key"):
            center.submit(stolen)
        for strange in ("\u00e9", "\ud800", "", "A" * 88, "0" * 10**6):
            with pytest.raises(ReportRefused, match="is not signed with its key"):
                center.submit(dataclasses.replace(first, signature=strange))
        assert center.submit(first) and center.submit(second)

    @pytest.mark.parametrize("changes", [
        {"delivered": 1.0}, {"s": 3.0}, {"s": None}, {"s": math.nan}, {"valuation": 0.25}, {"agent": "agent-2"},
        {"nonce": "0" * 32}, {"nonce": None}, {"update": {"w": np.float64([1, 2])}}, {"update": {"v": np.zeros(2)}},
    ])  # fmt: skip
    def test_whatever_is_changed_after_signing_is_found(self, changes) -> None:
        center, _, (signed, _) = self.training()
        with pytest.raises(ReportRefused, match="is not signed with its key"):
            center.submit(dataclasses.replace(signed, **changes))

    def test_a_signed_report_of_another_round_phase_or_run_cannot_be_replayed(self, tmp_path) -> None:
        center, agents, old = self.training()
        for signed in old:
            center.submit(signed)
        center.close()
        assert not center.submit(old[0])
        with pytest.raises(ReportRefused, match="not signed"):
            center.submit(dataclasses.replace(old[0], round=center.run.round))
        again, _ = set_table(self.GAME, "upbred", keys=self.ring, oracles=BLIND, rounds=2, beta="0.5")
        others = agents_of(self.GAME, keys=self.ring)
        play_until(again, others, "train")
        with pytest.raises(ReportRefused, match="not signed"):  # a run of the same name, with the same keys
            again.submit(old[0])

    def test_with_keys_everyone_needs_one(self) -> None:
        ring = ring_of("ab")
        with pytest.raises(SettingError, match="no public key of agent 'c'"):
            center_of(keys=ring)
        with pytest.raises(SettingError, match="no private key of the center"):
            center_of(keys=KeyRing(ring_of("abc").public.values()))
        with pytest.raises(SettingError, match="'center' needs another name"):
            center_of(keys=ring_of("ab"), agents=("a", "b", "center"))


class TestAggregation:
    def test_the_mean_moves_the_model_by_eta(self) -> None:
        center = center_of(eta=0.5, rounds=1)
        for agent, value in zip("abc", (1.0, 2.0, 6.0), strict=True):
            center.submit(report(center, agent, value=value))
        center.close()
        assert center.w["bias"] == pytest.approx([1.5, 1.5]) and center.w["bias"].dtype == np.float32

    def test_weights_by_delivered_points(self) -> None:
        center = center_of(weights="samples", rounds=1)
        for agent, value, points in zip("abc", (1.0, 2.0, 6.0), (8.0, 2.0, 0.0), strict=True):
            center.submit(report(center, agent, value=value, delivered=points))
        center.close()
        assert center.w["bias"] == pytest.approx([1.2, 1.2])

    def test_nobody_delivered_anything(self) -> None:
        center = center_of(weights="samples", rounds=1)
        for agent in "abc":
            center.submit(report(center, agent, value=0.0, delivered=0.0))
        center.close()
        assert center.w["bias"] == pytest.approx([0.0, 0.0])

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [("trimmed-mean", 3.0), ("median", 3.0), ("multi-krum", 2.5), ("geometric-median", 3.0), ("mean", 202.0)],
    )
    def test_rules_by_name(self, rule, expected) -> None:
        center = center_of(agents="abcde", aggregation=rule, alpha=0.2, rounds=1, w={"x": np.zeros(1)})
        for agent, value in zip("abcde", (1.0, 2.0, 3.0, 4.0, 1000.0), strict=True):
            center.submit(report(center, agent, value=value))
        center.close()
        assert center.w["x"][0] == pytest.approx(expected, abs=0.5)

    def test_the_paper_divides_the_trimmed_sum_by_n(self) -> None:
        center = center_of(agents="abcde", aggregation="trimmed-mean", alpha=0.2, normalize="paper", rounds=1)
        for agent, value in zip("abcde", (1.0, 2.0, 3.0, 4.0, 1000.0), strict=True):
            center.submit(report(center, agent, value=value))
        center.close()
        assert center.w["bias"] == pytest.approx([9 / 5, 9 / 5])

    @pytest.mark.parametrize("rule", ["norm-clipping", "centered-clipping"])
    def test_clipping_limits_one_agent(self, rule) -> None:
        center = center_of(agents="abcde", aggregation=rule, clip=1.0, rounds=2, w={"x": np.zeros(1)})
        for _ in range(2):
            for agent, value in zip("abcde", (1.0, 1.0, 1.0, 1.0, 1000.0), strict=True):
                center.submit(report(center, agent, value=value))
            center.close()
        assert 1.5 < center.w["x"][0] < 2.5

    def test_buffers_pass_no_optimizer_and_counters_take_the_largest(self) -> None:
        w = {"x": np.zeros(1), "running_var": np.full(1, 4.0), "batches": np.array(7, np.int64)}
        center = center_of(w=w, server_optimizer="adam", eta=0.1, rounds=1, buffers=("running_var", "batches"))
        for agent, value, count in zip("abc", (-1.0, -2.0, -3.0), (3, 9, 1), strict=True):
            update = {"x": np.full(1, value), "running_var": np.full(1, value), "batches": np.array(count, np.int64)}
            center.submit(report(center, agent, update=update))
        center.close()
        assert center.w["running_var"] == pytest.approx([2.0])  # 4 + mean(-1, -2, -3), not a step of Adam
        assert center.w["batches"] == 16 and center.w["batches"].dtype == np.int64
        assert center.w["x"] == pytest.approx([-0.1], abs=1e-6)  # Adam's first step has size eta

    def test_adam_is_adam(self) -> None:
        center = center_of(server_optimizer="adam", eta=0.01, rounds=3, w={"x": np.zeros(2)})
        m, v, x = np.zeros(2), np.zeros(2), np.zeros(2)
        for t, g in enumerate([np.array([1.0, -2.0]), np.array([0.5, 0.5]), np.array([-3.0, 0.1])], start=1):
            for agent in "abc":
                center.submit(report(center, agent, update={"x": g}))
            center.close()
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            x = x + 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        assert center.w["x"] == pytest.approx(x, abs=1e-12)


def test_a_reported_s_is_paid_to_the_millionth(tmp_path) -> None:
    """What is broadcast, recorded and paid on is one and the same integer."""
    with ledger.open(tmp_path / "l.db") as book:
        center = center_of("upbred", ledger=book, payment="contribution", rounds=1, beta="2")
        for agent, points in zip("abc", (1.00000049, 2.0, 3.0), strict=True):
            center.submit(report(center, agent, delivered=points))
        result = center.close()
        entry = list(book.entries())[-1]
    assert entry.inputs["delivered"] == {"a": 1_000_000, "b": 2_000_000, "c": 3_000_000}
    assert result.payments == payments.contribution.amounts(2, entry.inputs["delivered"])


def test_a_round_that_could_not_be_saved_is_paid_the_same_when_it_is_closed_again(tmp_path, monkeypatch) -> None:
    """What a payment remembers belongs to the state that was not kept."""
    terms = {"beta": "0.5", "rounds": 3, "gamma": 1000.0, "strategies": {"agent-1": "free-rider"}}
    heads = []
    for name in ("undisturbed", "disturbed"):
        with ledger.open(tmp_path / f"{name}.db") as book:
            center, agents = set_table(
                random_data_value(2, 3, 2), "2p-upbred", book=book, folder=tmp_path / name, **terms
            )
            play_until(center, agents, "train", trained=1)
            answer(center, agents)
            if name == "disturbed":
                with monkeypatch.context() as broken, pytest.raises(RunError, match="full"):
                    broken.setattr(state, "save", lambda *_: (_ for _ in ()).throw(RunError("the disk is full")))
                    center.close()
            play(center, agents)
            heads.append(book.head())
            assert verify(book, recompute=True).clean
    assert heads[0] == heads[1]


def test_what_is_paid_before_the_first_round_is_in_the_balances(tmp_path) -> None:
    """Everyone starts at s_max, so the commitments are settled at once."""
    game = random_data_value(2, 3, 2)
    game = game.starting_at(s0=game.s_max)
    with ledger.open(tmp_path / "l.db") as book:
        run = played(game, "2p-upbred", beta="0.5", rounds=2, settlement="commitment", book=book)
        assert run.outcome.payments == book.balances("test") and any(run.outcome.payments.values())


class TestBounds:
    """What one enrolment may cost the others; the center sets it."""

    def enrolled(self, most: float = 1e9, **values):
        settings = mechanisms.Settings.read({"run": "r", "mechanism": "2p-upbred", "beta": "2", **values})
        agents = [Enrol("a", 100.0, 4.0), Enrol("b", 100.0, 4.0), Enrol("mallory", most, 4.0)]
        return opened(settings, "2p-upbred", agents, W)

    def test_more_points_than_the_center_allows_are_refused(self) -> None:
        with pytest.raises(
            SettingError, match="'mallory' enrols with s_max = 1000000000.0: .*most_points allows it 500"
        ):
            self.enrolled(most_points=500)
        with pytest.raises(SettingError, match="'mallory' .* allows it 99"):
            self.enrolled(100.0, most_points={"a": 1000, "b": 1000, "mallory": 99})
        self.enrolled(500.0, most_points=500)

    def test_an_enrolment_that_makes_others_owe_too_much_is_refused_by_name(self) -> None:
        with pytest.raises(SettingError, match="'mallory' .* it alone could make the others owe 1e\\+09 each"):
            self.enrolled(most_owed="1000")
        self.enrolled(800.0, most_owed="1000")

    def test_what_all_together_make_somebody_owe_is_bounded_too(self) -> None:
        with pytest.raises(SettingError, match="Agent 'a' could owe 1000 in run 'r', incentive.most_owed is 999"):
            self.enrolled(900.0, most_owed="999")
        self.enrolled(900.0, most_owed="1000")

    @pytest.mark.parametrize("most", [1e13, 1e300])
    def test_money_that_the_ledger_cannot_hold_is_refused(self, most: float) -> None:
        with pytest.raises(SettingError, match="64 bits"):
            self.enrolled(most, scale=1, rounds=1)
        with pytest.raises(SettingError, match="'mallory' .* does not fit the ledger's 64 bits|64 bits"):
            self.enrolled(most, scale=1, rounds=1, minor=10**15)

    def test_the_bound_is_part_of_the_terms(self, tmp_path) -> None:
        settings = mechanisms.Settings.read({"run": "r", "mechanism": "2p-upbred", "beta": "2", "most_owed": "150.5"})
        with ledger.open(tmp_path / "l.db") as book:
            opened(settings, "2p-upbred", [Enrol("a", 10.0, 4.0), Enrol("b", 10.0, 4.0)], W, book)
            assert next(book.entries()).inputs["terms"]["owed"] == "301/2"
