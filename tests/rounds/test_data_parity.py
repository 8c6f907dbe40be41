"""Training on real data ends as it does in every host; the hosts' own suites compare with the same results."""

from __future__ import annotations

import pytest
from data_parity import EXPECTED, MECHANISMS, in_engine


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_engine_gives_what_every_host_gives(mechanism, tmp_path) -> None:
    assert in_engine(mechanism, tmp_path) == EXPECTED[mechanism]
