"""Training on real data ends as it does in every host; the hosts' own suites compare with the same results."""

from __future__ import annotations

import pytest
from data_parity import EXPECTED, MECHANISMS, in_engine

from fedincentive import draws


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_engine_gives_what_every_host_gives(mechanism, tmp_path) -> None:
    assert in_engine(mechanism, tmp_path) == EXPECTED[mechanism]


def test_a_local_seed_is_the_generators_own_draw() -> None:
    for seed, agent in ((0, "agent-1"), (2**70, "höspital")):
        drawn = [int(draws.generator(seed, "train", agent, step).integers(2**31)) for step in range(500)]
        assert [draws.local_seed(seed, agent, step) for step in range(500)] == drawn
