"""Privacy loss distributions that are computed for all losses at once are those of dp-accounting."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from skdpgen.accounting import _gaussian_losses
from skdpgen.accounting._gaussian_losses import gaussian_distribution

EPSILONS = np.array([-3.0, -0.5, 0.0, 0.01, 0.3, 1.0, 4.0, 20.0])


def distributions_are_those_of_dp_accounting(z, q, relation, interval):
    ours = gaussian_distribution(z, interval, sampling_rate=q, relation=relation)
    theirs = pld.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=interval, neighboring_relation=relation,
        log_mass_truncation_bound=-50,
    )  # fmt: skip
    for one, other in ((ours, theirs), (ours.self_compose(8), theirs.self_compose(8))):
        np.testing.assert_allclose(
            one.get_delta_for_epsilon(EPSILONS), other.get_delta_for_epsilon(EPSILONS), rtol=1e-9, atol=1e-18
        )
        for delta in (1e-3, 1e-6, 1e-10):
            found = one.get_epsilon_for_delta(delta), other.get_epsilon_for_delta(delta)
            assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("z", [0.4, 1.4, 30.0])
@pytest.mark.parametrize("q", [1e-5, 0.004, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("relation", [NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE], ids=str)
def test_distributions_are_those_of_dp_accounting(z, q, relation):
    distributions_are_those_of_dp_accounting(z, q, relation, {0.4: 0.02, 1.4: 4e-3, 30.0: 2e-4}[z])


def test_few_losses_and_those_that_do_not_fall_are_connected_one_by_one(monkeypatch):
    for interval in (4e-3, 0.2):
        distributions_are_those_of_dp_accounting(1.0, 0.1, NeighboringRelation.ADD_OR_REMOVE_ONE, interval)
    monkeypatch.setattr(_gaussian_losses, "_FEW_POINTS", 10**9)
    distributions_are_those_of_dp_accounting(1.0, 0.1, NeighboringRelation.ADD_OR_REMOVE_ONE, 4e-3)
