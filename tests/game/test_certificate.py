"""The certificate: what it says, on what basis, and that it survives JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedincentive import game as games
from fedincentive.errors import FedIncentiveError
from fedincentive.game import (
    CLAIMS,
    Certificate,
    Claim,
    EffectiveCost,
    Evidence,
    Misreports,
    Verdict,
    beta_dom,
    beta_ne,
    outside_options,
    paper_example,
    random_data_value,
    random_quadratic,
    repaired_example,
)
from fedincentive.payments import Contribution, Promises, Truthful

SEEDS = st.integers(0, 10_000)
W = np.array([1.0, 2.0])


def finding(certificate: Certificate, name: str) -> Verdict:
    return next(found for found in certificate.findings if found.claim == name)


def certify(
    game,
    w,
    s,
    *,
    beta=0.0,
    settlement="tranches",
    truthful=False,
    claims=(),
    disclaimed=(),
    notes=(),
    payments=None,
    **known,
) -> Certificate:
    """The certificate of an outcome under the contribution payment, p* or both."""
    paid = [Contribution(Fraction(beta), settlement=settlement)] if beta and settlement != "none" else []
    paid += [Truthful()] if truthful else []
    known["promises"] = Promises(tuple(claims), dict(disclaimed), dict(notes))
    known["postings"] = payments if payments is None else (payments,) if isinstance(payments, dict) else tuple(payments)
    return games.certify(Evidence.of(game, w, s, paid, **known))


def certify_full(**changes) -> Certificate:
    game = repaired_example()
    fields = dict(beta=0.05, payments={"agent-1": 0, "agent-2": 0}, claims=tuple(CLAIMS))
    return certify(game, W, game.s_max, **{**fields, **changes})


def test_the_good_outcome_of_the_repaired_example():
    held = certify_full()
    assert held.regret.value == 0.0
    assert held.welfare.value == pytest.approx(1.9)
    assert held.net_welfare.value == pytest.approx(1.6)
    assert held.gap.value == pytest.approx(0.0, abs=1e-12)
    assert held.slope_norm.value == 0.0 and held.model_norm.value == 0.0
    assert held.losers == () and held.broken == ()
    status = {found.claim: found.status for found in held.findings}
    assert status == {
        "budget-balanced": "held",
        "full-contribution": "held",
        "equilibrium": "held",
        "individually-rational": "held",
        "truthful": "not verifiable",
        "false-name-proof": "held",
        "merger-proof": "not verifiable",
        "robust": "not verifiable",
        "optimal-welfare": "held",
    }


def test_a_sunk_payment_breaks_the_equilibrium_and_names_the_deviation():
    sunk = certify_full(settlement="commitment")
    broken = finding(sunk, "equilibrium")
    assert (broken.status, broken.agent, broken.deviation) == ("broken", "agent-1", "s -> 0")
    assert broken.gain == pytest.approx(0.15)
    assert "payment sunk (commitment)" in str(sunk) and "[agent agent-1, s -> 0, gain 0.15]" in str(sunk)
    assert certify_full(settlement="end").regret.value == 0.0
    assert certify_full(settlement="none").regret.value == pytest.approx(0.15)


def test_the_free_riding_equilibrium_is_an_equilibrium_and_not_optimal():
    rest = certify(repaired_example(), W, [0.0, 5.0], claims=("equilibrium", "full-contribution", "optimal-welfare"))
    assert [found.status for found in rest.findings] == ["held", "broken", "broken"]
    assert rest.gap.value == pytest.approx(0.1)
    assert "agent-1 gives 0 of 5" in finding(rest, "full-contribution").detail


@pytest.mark.parametrize("settlement", ["tranches", "end", "commitment", "none"])
@pytest.mark.parametrize("truthful", [False, True])
def test_json_round_trip(settlement, truthful):
    made = certify_full(settlement=settlement, truthful=truthful, disclaimed={"merger-proof": "merging pays"})
    assert Certificate.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made


@pytest.mark.parametrize(("basis", "told"), [("signed", "signed"), ("reported", "reported"), ("exact", "reported")])
def test_valuations_are_as_good_as_who_signed_them(basis, told):
    made = Evidence(("a", "b"), [3.0, 4.0], [3.0, 5.0], valuations={"a": 1.5, "b": 2.0}, basis=basis)
    assert (games.certify(made).welfare.value, games.certify(made).welfare.basis) == (3.5, told)


def test_a_real_federation_knows_little_and_says_so():
    made = games.certify(
        Evidence(
            ("a", "b"),
            [3.0, 4.0],
            [3.0, 5.0],
            payments=(Contribution(Fraction(2)),),
            postings=({"a": -5, "b": 5}, {"a": 1, "b": -1}),
            valuations={"a": 1.5, "b": 2.0},
            basis="reported",
            promises=Promises(tuple(CLAIMS)),
        )
    )
    assert made.regret.value is None and made.regret.basis == "unavailable"
    assert (made.welfare.value, made.welfare.basis) == (3.5, "reported")
    assert made.net_welfare.basis == made.gap.basis == "unavailable"
    assert finding(made, "budget-balanced").status == "held"
    short = finding(made, "full-contribution")
    assert (short.status, short.basis) == ("broken", "reported")
    for name in ("equilibrium", "individually-rational", "truthful", "optimal-welfare"):
        assert finding(made, name).status == "not verifiable"
    assert Certificate.from_json(json.loads(json.dumps(made.to_json()))) == made
    (line,) = [line for line in str(made).splitlines() if line.startswith("  not known here")]
    assert "max regret, |g(w, s)|, |g~(w, s)|, net welfare, optimal welfare, gap" in line
    assert "the center knows neither costs nor valuations" in line


def test_a_fact_is_known_no_better_than_the_contributions_and_the_game():
    made = certify_full(basis="attested", game_basis="assumed")
    assert made.regret.basis == made.welfare.basis == "assumed"
    assert finding(made, "full-contribution").basis == "attested"


def test_payments_are_checked_posting_by_posting():
    game = repaired_example()
    off = certify(
        game, W, game.s_max, beta=0.05, payments=[{"agent-1": 1}, {"agent-2": -1}], claims=["budget-balanced"]
    )
    assert finding(off, "budget-balanced").status == "broken"
    assert "posting 0 sums to 1" in finding(off, "budget-balanced").detail
    paid = certify_full(treasury=7, payments={"agent-1": 7, "treasury": -7})
    assert "treasury paid 7" in finding(paid, "budget-balanced").detail
    assert paid.deficit.value == pytest.approx(7e-6)
    assert finding(certify_full(payments=None), "budget-balanced").status == "not verifiable"


def test_posted_payments_decide_who_is_worse_off_and_over_budget():
    game = replace(repaired_example(), outside_option=np.array([0.7, 0.7]), budget=np.array([0.05, np.inf]))
    made = certify(
        game,
        W,
        game.s_max,
        beta=0.05,
        payments={"agent-1": -100_000, "agent-2": 100_000},
        claims=["individually-rational"],
    )
    assert [row.agent for row in made.losers] == ["agent-1"]
    assert made.losers[0].amount == pytest.approx(0.65)
    assert [(row.agent, row.limit) for row in made.over_budget] == [("agent-1", 0.05)]
    broken = finding(made, "individually-rational")
    assert (broken.agent, broken.gain) == ("agent-1", pytest.approx(0.05))
    rich = certify(game, W, game.s_max, payments={"agent-1": 10**6, "treasury": -(10**6)}, treasury=10**6)
    assert rich.losers == ()


def test_truthful_is_never_printed_as_held():
    nothing = certify_full(misreports=Misreports("joint grid over s, d, v"))
    found = finding(nothing, "truthful")
    assert found.status == "not verifiable"
    assert found.detail == "no profitable misreport found, search = joint grid over s, d, v"
    caught = certify_full(misreports=Misreports("grid", gain=2.577, agent="agent-2", deviation="d x 3"))
    assert finding(caught, "truthful").status == "broken"
    assert "[agent agent-2, d x 3, gain 2.577]" in str(caught)


def test_regret_with_p_star_counts_what_a_move_does_to_the_others():
    game = repaired_example()
    made = certify(game, W, [0.0, 5.0], truthful=True)
    # With p* agent-2 (cost 0.02) sees the welfare slope 2 x 0.5/25 = 0.04; it cannot go beyond 5, and agent-1 may not.
    assert made.regret.value == 0.0
    assert made.regret_with_all.lower_bound
    inner = certify(game, W, [0.0, 4.0], truthful=True)
    assert inner.regret_with_all.value > inner.regret.value


@settings(max_examples=200)
@given(
    s=st.lists(st.integers(0, 1000), min_size=2, max_size=6),
    cuts=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
    who=st.integers(0, 5),
)
def test_splitting_never_pays_and_merging_always_does(s, cuts, who):
    """The closed forms of the claims against the payment rule itself, in exact arithmetic."""

    def paid(contributions, i):
        others = [x for j, x in enumerate(contributions) if j != i]
        return Fraction(contributions[i]) - Fraction(sum(others), len(others))

    who %= len(s)
    ends = [0, *sorted(min(c, s[who]) for c in cuts), s[who]]
    parts = [b - a for a, b in zip(ends, ends[1:], strict=False)]
    split = parts + [x for j, x in enumerate(s) if j != who]
    after = sum(paid(split, i) for i in range(len(parts)))
    n, k, total = len(s), len(parts), sum(s)
    loss = Fraction((k - 1) * (total * (n - 2) + s[who]), (n - 1) * (n + k - 2))
    assert paid(s, who) - after == loss >= 0


def test_a_merger_is_shown_with_its_gain():
    game = random_data_value(3, 5)
    made = certify(game, game.w0, game.s_max, beta=1.0, claims=["merger-proof", "false-name-proof"])
    found = finding(made, "merger-proof")
    assert found.status == "broken"
    first = game.agents.index(found.agent)
    second = game.agents.index(found.deviation.removeprefix("merges with "))
    merged = np.append(np.delete(game.s_max, [first, second]), game.s_max[first] + game.s_max[second])
    after = merged[-1] - merged[:-1].mean()
    assert found.gain == pytest.approx(after - game.payments(game.s_max, 1.0)[[first, second]].sum())


def test_disclaimed_claims_and_notes_are_printed():
    made = certify_full(disclaimed={"merger-proof": "two agents gain by merging"}, notes={"truthful": "per round"})
    assert finding(made, "truthful").detail.endswith("(per round)")
    last = made.findings[-1]
    assert (last.claim, last.status) == ("merger-proof", "not claimed")


def test_a_third_party_brings_its_own_claim():
    quiet = Claim("quiet", "nobody gives anything", lambda known: Verdict("quiet", "broken", "they do", known.basis))
    assert certify_full(claims=[quiet]).findings[0].status == "broken"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claims": ["budget-balance"]}, "No claim 'budget-balance'. Did you mean 'budget-balanced'?"),
        ({"settlement": "never"}, "settlement is 'never'"),
    ],
)
def test_unknown_names_are_refused(changes, message):
    with pytest.raises(FedIncentiveError, match=message):
        certify_full(**changes)


def test_an_equilibrium_found_by_search_alone_is_not_verified():
    game = random_quadratic(1, 3, 2, contracting=False)
    enough, dominant = beta_ne(game, game.w0) + 1e-6, beta_dom(game, game.w0)
    assert enough < dominant
    searched = certify(game, game.w0, game.s_max, beta=enough, claims=["equilibrium"])
    assert searched.regret.value == pytest.approx(0.0, abs=1e-6)
    assert finding(searched, "equilibrium").status == "not verifiable"
    assert "search = grid of 256 cells" in finding(searched, "equilibrium").detail
    proven = certify(game, game.w0, game.s_max, beta=dominant, claims=["equilibrium"])
    assert finding(proven, "equilibrium").status == "held"


def test_the_outside_option_is_the_best_an_agent_can_do_alone():
    game = repaired_example()
    t = np.linspace(0.01, 5.0, 10_000)
    expected = [(1 - 0.5 / t - c * t).max() for c in (0.04, 0.02)]
    np.testing.assert_allclose(outside_options(game), expected, atol=1e-6)
    given = replace(game, outside_option=np.array([0.1, 0.2]))
    np.testing.assert_array_equal(outside_options(given), [0.1, 0.2])


def test_a_cheap_niche_counts_for_training_alone():
    game = repaired_example()
    niche = EffectiveCost(lambda s: 0.5 - 0.5 * np.exp(-(((s - 3.1) / 0.05) ** 2)), np.zeros_like)
    alone = outside_options(replace(game, cost=niche))
    np.testing.assert_allclose(alone, 1.0 - 0.5 / 3.1, atol=1e-3)


def test_a_hundred_thousand_agents_get_one_certificate():
    game = random_data_value(2, 100_000)
    made = certify(game, game.w0, game.s_max, beta=0.02, claims=("equilibrium", "full-contribution", "merger-proof"))
    assert finding(made, "equilibrium").status == "held"
    assert len(str(made)) < 10_000


def test_example_one_is_certified_as_the_paper_says_with_w_frozen():
    game = paper_example()
    made = certify(game, game.w0, [0.0, 5.0], claims=["equilibrium"])
    assert finding(made, "equilibrium").status == "held"
    assert made.welfare.value == pytest.approx(1.8)
    assert made.model_norm.value > 0.1  # and not a fixed point of the joint dynamics
