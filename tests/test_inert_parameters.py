"""A parameter that would do nothing in a combination is refused before the charge."""

from __future__ import annotations

import numpy as np
import pytest
from _command_line import refused

from skdpgen import (
    DPSGD,
    DataLensSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    GSWGANSynthesizer,
    PrivacyAccountant,
)

X = np.random.default_rng(0).uniform(0, 1, (60, 3))
ONE = {"n_clusters": 1, "training": DPSGD(10, 0.5)}
INERT = {
    "shrinkage without y": (lambda: DPGaussianMixture(2, shrinkage=0.3), (X,), "shrinkage"),
    "a share of no clusters": (
        lambda: DPGMSynthesizer(budget_split={"clusters": 0.2}, **ONE), (X,), '"clusters" of budget_split'
    ),
    "steps of no clusters": (lambda: DPGMSynthesizer(cluster_steps=3, **ONE), (X,), "cluster_steps"),
    "frequencies of no clusters": (lambda: DPGMSynthesizer(n_frequencies=7, **ONE), (X,), "n_frequencies"),
    "a scale of no clusters": (lambda: DPGMSynthesizer(length_scale=2.0, **ONE), (X,), "length_scale"),
    "critics that never learn": (
        lambda: GSWGANSynthesizer(n_critics=5, critic_steps=0, warm_start_steps=0), (X,), "lets no critic learn"
    ),
    "teachers that never learn": (
        lambda: DataLensSynthesizer(n_teachers=5, teacher_steps=0, warm_start_steps=0), (X,), "lets no teacher learn"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INERT)
def test_a_parameter_that_would_do_nothing_is_refused_before_the_charge(name):
    make, data, match = INERT[name]
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=match):
        make().set_params(accountant=accountant).fit(*data)
    assert not accountant.entries


@pytest.mark.parametrize(
    ("command", "match"),
    [
        (("audit", "DPNet", "--runs", "50"), "--runs has no effect here"),
        (("audit", "DPNet", "--method", "counts"), "--method has no effect here"),
        (("audit", "DPNet", "--fits", "50", "--canaries", "9"), "--canaries has no effect here"),
        (("demo", "--dataset", "digits", "--data", "folder"), "--data is the folder of Adult"),
        (("ledger", "books.db", "--all", "--json"), "leave out --all"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(capsys, command, match):
    assert match in refused(capsys, *command)
