"""T-UPBReD: what the printed fine lets through, what audits stop, and what it costs the treasury."""

from __future__ import annotations

import dataclasses
import runpy
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from table import BLIND, oracle_of, play, played, set_table

from fedincentive import ledger, mechanisms
from fedincentive.adversary import Attack, Misreport
from fedincentive.agent import Away, GameOracle
from fedincentive.errors import SettingError
from fedincentive.game import quote, random_data_value, random_quadratic, repaired_example
from fedincentive.payments import Oracles, Truthful
from fedincentive.settings import Settings

TERMS = {"gamma": 0.5, "eta": 0.3, "loss_cap": 10_000.0}


@dataclass(frozen=True)
class Shift(Attack):
    """d^ = size d + shift: any point of the update space can be reached."""

    shift: tuple[float, ...] = ()

    @property
    def omniscient(self) -> bool:
        return False

    def __call__(self, update, honest=(), *, step=0, last=None):
        return {"w": self.size * update["w"] + np.array(self.shift)}


def moved_d(size: float, shift: np.ndarray) -> Shift:
    return Shift("shift", size, 0, tuple(shift.tolist()))


def total_utility(run, game, liar: str) -> float:
    """Per round v_i at the new model and what everyone really gives, less the cost, plus what was paid."""
    i, total = game.agents.index(liar), 0.0
    for result, (w, s) in zip((r for r in run.history if r.phase == "value"), run.seen, strict=True):
        total += float(game.values(w, s)[i] - game.costs(s)[i]) + result.payments.get(liar, 0) / 10**6
    return total


def play_round_by_round(game, lies, **terms):
    """As `played`, remembering the model and the true contributions after every value exchange."""
    center, agents = set_table(game, "t-upbred", lies=lies, **{**TERMS, **terms})
    by_name = {agent.name: agent for agent in agents}
    return remembered(center, agents, lambda result, n: by_name[n].actual if by_name[n].lies.s else result.s[n])


def remembered(center, agents, given):
    """The run to its end; `given(result, name)` is what an agent really gives after a value exchange."""
    history, seen = [], []

    def note(result):
        history.append(result)
        if result.phase == "value":
            seen.append((center.w["w"], np.array([given(result, agent.name) for agent in agents])))

    play(center, agents, progress=note)
    center.history, center.seen = history, seen
    return center


def search(game, liar: str, rng, rounds: int, tries: int = 40, **terms) -> tuple[float, str]:
    """The best joint misreport of s^, d^ and v^ that a random and directed search finds: (gain, what it was)."""
    honest = total_utility(play_round_by_round(game, {}, rounds=rounds, **terms), game, liar)
    best = (-np.inf, "")
    for k in range(tries):
        say_s, say_d, say_v = (bool(yes) for yes in rng.random(3) < 0.6)
        share, size, jump = rng.uniform(0.0, 1.0), rng.uniform(-1.0, 4.0), rng.normal(size=2) * rng.choice([0.1, 1.0])
        v_off = rng.normal() * rng.choice([0.01, 1.0, 10.0])
        if k < 3:  # d alone, inflated: the flaw of the printed rule
            say_s, say_d, say_v, size, jump = False, True, False, 1.5 + k, np.zeros(2)
        elif k < 6:  # s alone, overstated
            say_s, say_d, say_v, share = True, False, False, 1.0 - 0.1 * (k - 3)
        lie = Misreport(
            s=(lambda s, s_max, share=share: share * s_max) if say_s else None,
            update=moved_d(size, jump) if say_d else None,
            valuation=(lambda v, off=v_off: v + off) if say_v else None,
        )
        gain = total_utility(play_round_by_round(game, {liar: lie}, rounds=rounds, **terms), game, liar) - honest
        what = f"s^ {share:.2f}" * say_s + f" d^ {size:.2f}" * say_d + f" v^ {v_off:.2f}" * say_v
        best = max(best, (gain, what))
    return best


def gap(game) -> str:
    """At least the most that welfare could rise: from (w0, 0) to the best model on all data."""
    low = min(game.welfare(game.w0, np.zeros(game.n)), game.welfare(game.w0, game.s0))
    return str(Fraction(int(1000 * (game.welfare(game.optimum(), game.s_max) - low)) + 1000, 1000))


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_misreports_pay_under_the_printed_rule_and_not_under_audits(seed, rounds) -> None:
    game = random_data_value(seed, 3, 2)
    liar = game.agents[seed % 3]
    rng = np.random.default_rng(seed)
    printed, how = search(game, liar, rng, rounds, tries=8, phi="paper", fine="1000000")
    assert printed > 1e-3, how
    audited, how = search(game, liar, rng, rounds, phi="audited", fine=gap(game))
    assert audited <= 1e-5, how


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_without_an_attested_s_audits_of_d_and_v_are_not_enough(seed) -> None:
    """An auditor that believes the reported s lets the overstated contribution through."""
    game = random_data_value(seed, 3, 2)
    liar, lie = game.agents[0], Misreport(s=lambda s, s_max: s_max)

    class Believing(GameOracle):
        def points(self, agent):
            return reported.run.s_max[agent] / 10**6 if agent == liar else super().points(agent)

    def total(lies):
        nonlocal reported
        center, agents = set_table(game, "t-upbred", lies=lies, rounds=2, fine=gap(game), **TERMS)
        reported, by_name = center, {agent.name: agent for agent in agents}
        oracle = oracle_of(game, agents, Believing)
        center.oracles = Oracles(oracle, oracle if lies else oracle_of(game, agents))
        return total_utility(remembered(center, agents, lambda result, name: by_name[name].actual), game, liar)

    reported = None
    assert total({liar: lie}) > total({}) + 1e-3


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ("overstate-s", "points"),
        ("understate-s", "points"),
        ("inflate-d", "update"),
        ("zero-d", "update"),
        ("inflate-v", None),  # held against the oracle's value of the new model
        ("deflate-v", None),
    ],
)
def test_each_misreport_alone_is_fined(lie, why) -> None:
    game = random_data_value(4, 3, 2)
    run = played(game, "t-upbred", lies={"agent-2": lie}, rounds=1, fine="50", **TERMS)
    honest = played(game, "t-upbred", rounds=1, fine="50", **TERMS)
    assert run.center.run.memory["truthful"]["failed"] == ({"agent-2": why} if why else {})
    fined = {name: honest.outcome.payments[name] - run.outcome.payments[name] for name in game.agents}
    assert fined["agent-2"] > 40 * 10**6
    assert max(abs(fined["agent-1"]), abs(fined["agent-3"])) < 10 * 10**6


def test_a_deviation_inside_the_tolerance_gains_at_most_epsilon() -> None:
    game = random_data_value(1, 3, 2)
    terms = {"rounds": 1, "fine": gap(game), "delta_d": 0.01}
    honest = play_round_by_round(game, {}, **terms)
    base = total_utility(honest, game, "agent-1")
    epsilon = next(r.metrics["epsilon"] for r in honest.history if r.phase == "train")
    rng, gains = np.random.default_rng(0), []
    for _ in range(40):
        direction = rng.normal(size=2)
        step = 0.0099 * direction / np.linalg.norm(direction)
        run = play_round_by_round(game, {"agent-1": Misreport(update=moved_d(1.0, step))}, **terms)
        assert run.run.memory["truthful"]["failed"] == {}
        gains.append(total_utility(run, game, "agent-1") - base)
    assert 0.0 < max(gains) <= epsilon


def test_previous_telescopes_to_the_others_improvement() -> None:
    game = random_data_value(6, 4, 2)
    run = played(game, "t-upbred", rounds=12, **TERMS)
    s = np.array([run.outcome.s[name] for name in game.agents])
    first, final = game.values(game.w0, np.zeros(4)), game.values(run.outcome.w["w"], s)
    for i, name in enumerate(game.agents):
        improvement = sum(final[j] - first[j] for j in range(4) if j != i)
        assert run.outcome.payments[name] / 10**6 == pytest.approx(improvement, abs=1e-4)
    assert run.outcome.treasury == -sum(run.outcome.payments.values())
    assert -run.outcome.treasury / 10**6 == pytest.approx(3 * (final.sum() - first.sum()), abs=1e-4)


def total_payment(game, agent: str, s0: float, **terms) -> float:
    """What an agent ends with, p* included, when it enrols with this s0: the utility at the end, paid over the run."""
    i, start = game.agents.index(agent), game.s0.copy()
    start[i] = s0
    run = played(game.starting_at(s0=start), "t-upbred", **{**TERMS, **terms})
    s = np.array([run.outcome.s[name] for name in game.agents])
    own = game.values(run.outcome.w["w"], s)[i] - game.costs(s)[i]
    return float(own + run.outcome.payments[agent] / 10**6)


@pytest.mark.parametrize("seed", range(5))
def test_no_s0_pays_more_than_another(seed) -> None:
    """What is paid telescopes to welfare at the end less a start that no report moves, and the dynamics end at the same
    place wherever they begin. Measured from the reported values at s0, a smaller s0 paid."""
    game = random_quadratic(seed, 3, 2)  # contracting: one place of rest
    agent = game.agents[seed % 3]
    i = game.agents.index(agent)
    terms = {"gamma": 0.2, "eta": 0.3, "rounds": 80, "report_values": False}
    had = {share: total_payment(game, agent, share * float(game.s_max[i]), **terms) for share in (0.0, 0.5, 1.0)}
    assert max(had.values()) - min(had.values()) < 1e-4
    before = [sum(game.values(game.w0, np.where(np.arange(3) == i, share * game.s_max, game.s0))) for share in (0, 1)]
    assert abs(before[0] - before[1]) > 1e-2  # what the others' values at s0 would have made of it


@pytest.mark.parametrize("seed", range(12))
def test_choosing_s0_brings_an_agent_what_it_brings_to_all_and_no_more(seed) -> None:
    """Where s barely moves, s0 is what is given: choosing it changes everyone's values and one's own cost. It no longer
    changes what is taken off for the start, by which enrolling with 0 paid in 18 of 20 such games."""
    game = random_data_value(seed, 3, 2)
    i = seed % 3

    def of(s0: float) -> tuple[float, float]:
        run = played(game.starting_at(s0=np.where(np.arange(3) == i, s0, game.s0)), "t-upbred", rounds=5, **TERMS)
        s = np.array([run.outcome.s[name] for name in game.agents])
        welfare, cost = game.welfare(run.outcome.w["w"], s), game.costs(s)[i]
        own = game.values(run.outcome.w["w"], s)[i]
        return own - cost + run.outcome.payments[game.agents[i]] / 10**6, welfare - cost

    honest, choices = of(float(game.s0[i])), [of(share * float(game.s_max[i])) for share in (0.0, 0.5, 1.0)]
    for had, together in choices:
        assert had - honest[0] == pytest.approx(together - honest[1], abs=1e-5)


def test_no_s0_pays_through_h() -> None:
    """A short search; `benchmarks/starts.py` is the long one."""
    search = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "starts.py"))
    found = [search["gains"](game, 1) for game in (random_data_value(1, 3, 2), random_quadratic(2, 3, 2))]
    for one in found:
        assert max(one.through_h, one.only_said, one.aside) < 1e-5 < one.by_truthful_1


def test_the_first_h_is_the_same_whatever_anyone_enrols_with() -> None:
    game, drawn = random_data_value(6, 4, 2), set()
    for s0 in (game.s0, 0.0 * game.s0, game.s_max):
        run = played(game.starting_at(s0=s0), "t-upbred", rounds=2, **TERMS)
        drawn.add(tuple(sorted(run.center.run.memory["truthful"]["baseline"].items())))
    assert len(drawn) == 1
    start = np.array([value for _, value in drawn.pop()]) / 10**6
    np.testing.assert_allclose(start, game.values(game.w0, np.zeros(4)), atol=1e-6)


def test_where_no_data_has_no_value_the_start_is_zero() -> None:
    run = played(repaired_example(), "t-upbred", rounds=2, **TERMS)
    assert run.center.run.memory["truthful"]["baseline"] == {"agent-1": 0, "agent-2": 0}


def test_the_quote_has_what_the_treasury_pays() -> None:
    game = random_data_value(6, 4, 2)
    found = quote(game, payments=[Truthful(loss_cap=10_000.0)], mechanism="t-upbred", full_contribution=False)
    start = game.welfare(game.w0, np.zeros(4))
    assert found.deficit == pytest.approx(3 * (found.welfare - start))
    assert "treasury pays" in str(found) and "3 times the welfare gain" in str(found)
    assert quote(game, "1").deficit == 0.0 and "treasury pays" not in str(quote(game, "1"))
    assert quote(game, payments=[Truthful(h="zero")], mechanism="t-upbred").deficit is None


def test_an_equilibrium_counts_the_payments_that_are_made() -> None:
    """Where s rests for its own value only, p* makes somebody want to move."""
    game = random_quadratic(2, 3, 2)
    moved = {}
    for oracles in (None, BLIND):
        run = played(game, "t-upbred", rounds=120, gamma=0.2, eta=0.3, loss_cap=10_000.0, oracles=oracles)
        found = run.center.conclude(game).certificate
        moved[oracles is None] = next(claim for claim in found.findings if claim.claim == "equilibrium")
        assert (found.regret_with_all is not None) == (oracles is None)
    assert moved[True].status == "broken" and moved[True].gain == pytest.approx(found_gain(game, run), rel=0.2)
    assert moved[False].status == "not verifiable"  # nobody gains, if what was reported is true


def found_gain(game, run) -> float:
    """By brute force: the most anyone gains by moving alone, its own utility and the others' values counted."""
    s, w = np.array([run.outcome.s[name] for name in game.agents]), run.outcome.w["w"]
    best = 0.0
    for i in range(game.n):
        for t in np.linspace(0.0, game.s_max[i], 400):
            moved = np.where(np.arange(game.n) == i, t, s)
            gain = game.welfare(w, moved) - game.costs(moved)[i] - game.welfare(w, s) + game.costs(s)[i]
            best = max(best, float(gain))
    return best


def test_zero_pays_the_others_values_every_round_and_the_deficit_is_reported(tmp_path) -> None:
    game = random_data_value(6, 4, 2)
    deficits = {}
    for h in ("previous", "zero"):
        with ledger.open(tmp_path / f"{h}.db") as book:
            run = played(game, "t-upbred", rounds=12, h=h, book=book, **TERMS)
            certificate = run.center.conclude(game).certificate
            assert book.balances("test")["treasury"] == run.outcome.treasury
        deficits[h] = certificate.deficit.value
        assert certificate.deficit.value == -run.outcome.treasury / 10**6
        assert run.history[-1].metrics["treasury"] == run.outcome.treasury / 10**6
        assert {"equilibrium", "truthful"} == set(run.outcome.promises.claims)
    assert abs(deficits["zero"]) > 5 * abs(deficits["previous"])


def test_the_certificate_counts_p_star_among_what_an_agent_has() -> None:
    game = random_data_value(6, 4, 2)
    run = played(game, "t-upbred", rounds=12, h="zero", **TERMS)
    s = np.array([run.outcome.s[name] for name in game.agents])
    unpaid = game.values(run.outcome.w["w"], s) - game.costs(s)
    paid = np.array([run.outcome.payments[name] / 10**6 for name in game.agents])
    assert min(paid) > 0
    for share, losers in ((0.5, []), (1.5, list(game.agents))):
        alone = dataclasses.replace(game, outside_option=unpaid + share * paid)
        assert [loser.agent for loser in run.center.conclude(alone).certificate.losers] == losers


def test_clarke_takes_the_others_value_without_the_agent() -> None:
    game = random_data_value(6, 3, 2)
    run = played(game, "t-upbred", rounds=1, h="clarke", **TERMS)
    s1 = np.array([run.outcome.s[name] for name in game.agents])
    d = game.gradients(game.w0, game.s0.round(6))
    final = game.values(run.outcome.w["w"], s1)
    for i, name in enumerate(game.agents):
        others = [j for j in range(3) if j != i]
        without = game.w0 + TERMS["eta"] / 2 * d[others].sum(axis=0)
        left = np.where(np.arange(3) == i, 0.0, s1)
        pivot = game.values(without, left)[others].sum()
        assert run.outcome.payments[name] / 10**6 == pytest.approx(final[others].sum() - pivot, abs=1e-4)


def test_clarke_needs_a_valuation_oracle() -> None:
    with pytest.raises(SettingError, match="h is 'clarke'.*ValuationOracle, or set h: previous"):
        set_table(random_data_value(0, 3, 2), "t-upbred", oracles=Oracles(), h="clarke")


def test_every_amount_in_the_ledger_can_be_derived_again(tmp_path) -> None:
    from fedincentive.ledger.verify import verify

    game = random_data_value(9, 4, 2)
    for h in ("previous", "zero", "clarke"):
        for phi in ("audited", "paper"):
            with ledger.open(tmp_path / f"{h}-{phi}.db") as book:
                played(game, "t-upbred", rounds=4, h=h, phi=phi, book=book, lies={"agent-3": "inflate-v"}, **TERMS)
                assert not verify(book, recompute=True).findings


@pytest.mark.parametrize(
    ("oracles", "phi", "effective", "reason"),
    [
        ("both", "audited", "audited", None),
        ("both", "paper", "paper", "inflating d pays"),
        ("values", "audited", "paper", "inflating d pays"),
        ("none", "audited", "none", "no oracle"),
        ("none", "paper", "none", "no oracle"),
    ],
)
def test_without_oracles_the_fine_falls_back_and_nothing_is_claimed(oracles, phi, effective, reason) -> None:
    oracle = GameOracle(random_data_value(0, 2, 1), lambda name: 0.0)
    known = {"both": Oracles(oracle, oracle), "values": Oracles(oracle), "none": Oracles()}[oracles]
    settings = Settings.read({"phi": phi, "unchecked": True})
    assert Truthful.of(settings).effective(known) == effective
    promises = mechanisms.get("t-upbred", settings).promises(known)
    assert ("truthful" in promises.claims) == (reason is None)
    assert "budget-balanced" in promises.disclaimed
    if reason:
        assert reason in promises.disclaimed["truthful"]
    else:
        assert "epsilon-EPIC" in promises.notes["truthful"]


def test_server_adam_withholds_the_claim() -> None:
    run = played(random_data_value(0, 3, 2), "t-upbred", rounds=2, server_optimizer="adam", **TERMS)
    assert "truthful" not in run.outcome.promises.claims
    assert "Adam" in run.outcome.promises.disclaimed["truthful"]
    assert all("epsilon" not in result.metrics for result in run.history)


@pytest.mark.parametrize("oracles", ["none", "valuation", "update"])
@pytest.mark.parametrize("phi", ["audited", "paper"])
def test_without_both_oracles_nothing_is_paid_on_words_unless_told_to(oracles, phi, tmp_path, caplog) -> None:
    game = random_data_value(0, 3, 2)
    oracle = GameOracle(game, lambda name: 0.0)
    known = {"none": BLIND, "valuation": Oracles(valuation=oracle), "update": Oracles(update=oracle)}[oracles]
    with ledger.open(tmp_path / "l.db") as book:
        lies = {"agent-1": Misreport(valuation=lambda v: v + 50.0)}
        run = played(game, "t-upbred", rounds=3, oracles=known, phi=phi, lies=lies, book=book, **TERMS)
        assert [record.kind for record in book.entries()] == ["terms", "commitment"]
        found = run.center.conclude(game).certificate
    assert run.outcome.status == "complete" and not any(run.outcome.payments.values()) and not run.outcome.treasury
    assert "p* is not paid" in caplog.text and "incentive.unchecked" in caplog.text
    assert "p* is not paid" in str(found) and "nothing is paid on them" in str(found)
    told = played(game, "t-upbred", rounds=3, oracles=known, phi=phi, unchecked=True, **TERMS)
    assert any(told.outcome.payments.values())


def test_truthful_is_never_printed_as_held() -> None:
    run = played(random_data_value(0, 3, 2), "t-upbred", rounds=3, **TERMS)
    found = {f.claim: f.status for f in run.center.conclude(random_data_value(0, 3, 2)).certificate.findings}
    assert found["truthful"] == "not verifiable"


def test_random_audits_divide_the_fine_and_charge_it_on_average() -> None:
    settings = Settings.read({"fine": "8", "audit": 0.25, "detection": 0.5})
    assert Truthful.of(settings).gamma(3) == 64 * 10**6
    assert Truthful.of(Settings.read({"loss_cap": 5.0, "value_per_nat": 2.0})).gamma(3) == 30 * 10**6
    game = random_data_value(4, 3, 2)
    common = {"rounds": 80, "fine": "8", "lies": {"agent-2": "inflate-d"}, "report_values": False, **TERMS}
    always = played(game, "t-upbred", **common)
    now_and_then = played(game, "t-upbred", audit=0.25, audit_seed=5, **common)
    fines = [r.payments["treasury"] / 10**6 for r in now_and_then.history if r.phase == "value"]
    hit = sum(1 for fine in fines if fine > 25)
    assert 10 <= hit <= 30  # 80 audits with probability 1/4
    total = now_and_then.outcome.treasury - always.outcome.treasury
    assert abs(total / 10**6 - (32 * hit - 8 * 80)) < 1e-6 * 80


def test_audits_are_the_centers_secret_and_differ_between_runs() -> None:
    game = random_data_value(4, 3, 2)
    drawn = set()
    for _ in range(3):
        center, _ = set_table(game, "t-upbred", audit=0.5, **TERMS)
        drawn.add(center.run.audit_seed)
        assert center.run.audit_seed not in center.broadcast().settings.values()
    assert len(drawn) == 3
    fixed, _ = set_table(game, "t-upbred", audit=0.5, audit_seed=7, **TERMS)
    assert fixed.run.audit_seed == 7


@pytest.mark.parametrize("phase", ["train", "value"])
def test_staying_away_does_not_escape_the_fine(phase) -> None:
    game = random_data_value(4, 3, 2)
    common = {"rounds": 3, "fine": "50", **TERMS}
    honest = played(game, "t-upbred", **common)
    away = played(game, "t-upbred", strategies={"agent-1": Away(phases=(phase,), steps=[1])}, **common)
    assert away.outcome.payments["agent-1"] < honest.outcome.payments["agent-1"] - 40 * 10**6


def test_a_valuation_beyond_the_cap_is_refused_where_money_hangs_on_it() -> None:
    game = random_data_value(4, 3, 2)
    common = {"rounds": 2, "gamma": 0.5, "eta": 0.3, "loss_cap": 0.001}
    assert played(game, "upbred", **common).outcome.counts == {}
    with pytest.raises(Exception, match="quorum"):
        played(game, "t-upbred", **common)


def test_the_certificate_names_the_fine_that_could_be_charged() -> None:
    game = random_data_value(0, 3, 2)
    for oracles, words in ((None, "p* (h: previous, fine: audited)"), (BLIND, "fine: none, for lack of an oracle")):
        run = played(game, "t-upbred", rounds=2, oracles=oracles, unchecked=True, **TERMS)
        assert words in run.center.conclude(game).certificate.payments[0]
