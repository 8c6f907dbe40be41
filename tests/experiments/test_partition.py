"""Partitions: every example once, reproducible, and shaped as their names say."""

from __future__ import annotations

import numpy as np
import pytest

from fedincentive.errors import SettingError
from fedincentive.experiments.partition import by_user, counts, dirichlet, grouped_users, iid, pathological

LABELS = np.random.default_rng(7).integers(0, 10, 5000)
USERS = np.random.default_rng(8).integers(0, 60, 5000)


def disjoint(parts: list[np.ndarray]) -> np.ndarray:
    held = np.concatenate(parts)
    assert len(np.unique(held)) == len(held)
    return np.sort(held)


def test_iid_shares_are_equal_random_and_cover_everything() -> None:
    parts = iid(1003, 10, seed=1)
    assert {len(part) for part in parts} == {100, 101}
    assert np.array_equal(disjoint(parts), np.arange(1003))
    assert not np.array_equal(parts[0], np.sort(parts[0]))


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: iid(5000, 7, seed),
        lambda seed: by_user(USERS, 20, seed),
        lambda seed: grouped_users(USERS, 6, seed=seed),
        lambda seed: dirichlet(LABELS, 10, 0.1, seed=seed),
        lambda seed: pathological(LABELS, 10, 3, seed=seed),
    ],
    ids=["iid", "by-user", "grouped", "dirichlet", "pathological"],
)
def test_the_seed_decides(draw) -> None:
    assert all(np.array_equal(a, b) for a, b in zip(draw(3), draw(3), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(draw(3), draw(4), strict=True))


def test_by_user_gives_each_agent_all_of_one_user() -> None:
    for part in by_user(USERS, 20, seed=2, least=50):
        (user,) = set(USERS[part])
        assert len(part) == np.sum(user == USERS) >= 50


def test_grouped_users_stay_together() -> None:
    parts = grouped_users(USERS, 6, 10, seed=3)
    owners = [set(USERS[part]) for part in parts]
    assert all(len(group) == 10 for group in owners)
    assert len(set().union(*owners)) == 60
    assert np.array_equal(disjoint(parts), np.arange(5000))


def test_dirichlet_is_skewed_and_balanced() -> None:
    balanced = dirichlet(LABELS, 10, 0.1, balance=True, seed=5)
    assert np.array_equal(disjoint(balanced), np.arange(5000))
    table = counts(LABELS, balanced, 10)
    top = np.sort(table, axis=1)[:, -2:].sum(axis=1) / table.sum(axis=1)
    assert np.median(top) > 0.6  # two classes make up most of an agent's data
    free = dirichlet(LABELS, 10, 0.1, balance=False, least=1, seed=5)
    assert max(map(len, balanced)) < max(map(len, free))


def test_dirichlet_with_a_large_alpha_is_nearly_uniform() -> None:
    table = counts(LABELS, dirichlet(LABELS, 5, 1000.0, seed=1), 10)
    assert np.all(np.abs(table / table.sum(axis=0) - 0.2) < 0.05)


def test_pathological_agents_hold_exactly_their_classes() -> None:
    parts = pathological(LABELS, 12, 3, seed=9)
    table = counts(LABELS, parts, 10)
    assert np.all((table > 0).sum(axis=1) == 3)
    drawn = table.sum(axis=0) > 0
    assert np.array_equal(table.sum(axis=0)[drawn], np.bincount(LABELS)[drawn])
    assert len(disjoint(parts)) == np.bincount(LABELS)[drawn].sum()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iid(5, 6), "between 1 and 5"),
        (lambda: by_user(USERS, 61), "61 users"),
        (lambda: grouped_users(USERS, 7, 10), "70 users"),
        (lambda: dirichlet(LABELS, 10, 0.0), "alpha"),
        (lambda: dirichlet(LABELS[:50], 40, 0.1), "in 10 tries"),
        (lambda: pathological(LABELS, 5, 11), "between 1 and 10"),
    ],
)
def test_what_cannot_be_shared_is_said(call, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        call()
