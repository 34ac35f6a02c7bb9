"""Learned categories: nothing but the cells above their threshold leaves the schema histogram."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen import P3GMSynthesizer
from skdpgen.data import frames as _frames
from skdpgen.mechanisms import add_gaussian
from skdpgen.tabular import Schema, schema_from_histogram, schema_histogram
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.usefixtures("short_fits")


def _fit(frame, monkeypatch, hidden):
    """Fit with the noisy counts of every rare category set to `hidden`."""

    def changed(bounded_sum, *rest):
        noisy = add_gaussian(bounded_sum, *rest)
        rare = (bounded_sum.value < 50) if np.size(bounded_sum.value) > 1 and np.ndim(bounded_sum.value) == 1 else False
        return np.where(rare, hidden, noisy)

    monkeypatch.setattr(_frames, "add_gaussian", changed)
    with seeded_noise(3, quiet=True):
        return P3GMSynthesizer(3.0, random_state=0).fit(frame)


@pytest.mark.parametrize(
    ("common", "rare", "others"),
    [
        (("x", "y"), ("other", "other_0"), ("odd", "strange")),
        ((5, 6), (-1, 4), (700, 800)),
        ((0.5, 1.5), (-1.0, 7.0), (70.5, 80.5)),
    ],
)
def test_no_name_that_is_released_follows_from_a_hidden_category(common, rare, others):
    """The level that stands for the rest has a name, and so has each that noise shows: of released values alone."""
    learned = []
    for hidden in (rare, others):
        frame = pd.DataFrame({"a": [*np.resize(common, 900).tolist(), *hidden]})
        schema = Schema.from_kinds(frame, categorical=["a"])
        counted = schema_histogram(frame, schema)
        learned.append(schema_from_histogram(counted.bounded_sum.value, counted, 10.0, 1e-6))
    assert learned[0]["a"].categories == common
    assert learned[0] == learned[1]


@pytest.mark.parametrize("hidden", [-1e6, 0.0])
def test_counts_below_the_threshold_change_nothing(hidden, monkeypatch):
    frame = pd.DataFrame({"a": ["x"] * 900 + ["rare"] * 3, "b": ["u"] * 450 + ["v"] * 453})
    reference = _fit(frame, monkeypatch, 1.0)
    other = _fit(frame, monkeypatch, hidden)
    assert other.model_.codec.encoder.schema_ == reference.model_.codec.encoder.schema_
    for name, value in reference.model_.latent_model.to_state().items():
        np.testing.assert_array_equal(other.model_.latent_model.to_state()[name], value)


def test_the_row_count_of_a_table_without_numbers_is_paid_for_by_itself():
    frame = pd.DataFrame({"a": ["x"] * 900, "b": ["u"] * 450 + ["v"] * 450})
    synth = P3GMSynthesizer(3.0).fit(frame)
    assert synth.accountant_.charges[0].label == "P3GMSynthesizer: schema, categories, rows, moments"
