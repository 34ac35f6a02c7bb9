"""Rows whose class was not learned: released counts leave them out, and so do the steps of a training."""

from __future__ import annotations

import types

import numpy as np
import pytest
from _flat import make_flat

from skdpgen import (
    DPCGANSynthesizer,
    DPGMSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    P3GMSynthesizer,
    PrivacyUnit,
    PriVAESynthesizer,
)
from skdpgen.dpsgd import PoissonLoader
from skdpgen.synthesizers._training import counted_rows

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
MODELS = (
    DPVAESynthesizer, PriVAESynthesizer, P3GMSynthesizer, DPGMSynthesizer, DPCGANSynthesizer, DPSinkhornSynthesizer,
)  # fmt: skip


def labels_with_rare_ones(n, rng):
    """Three classes, and seven rows in ten with a label that no other row has."""
    y = rng.choice(list("abc"), n).astype(object)
    rare = rng.random(n) < 0.7
    y[rare] = [f"rare {i}" for i in range(rare.sum())]
    return y


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("weighting", [None, "rows", "units"])
def test_steps_have_room_for_their_rows(model, weighting):
    rng, n, loaders, batches = np.random.default_rng(0), 4000, [], []
    X, y, groups = rng.normal(size=(n, 2)), labels_with_rare_ones(n, rng), np.repeat(np.arange(n // 2), 2)

    begin, compute = PoissonLoader.__init__, PoissonLoader._chunk

    def watched_init(self, *args, **options):
        loaders.append(self)
        begin(self, *args, **options)

    def watched_chunk(self, rows, *args, drawing=True):
        if drawing:
            batches.append(len(rows) / self.physical_batch)
        return compute(self, rows, *args, drawing=drawing)

    units = {} if weighting is None else {"unit": PrivacyUnit("person", max_rows=2, weighting=weighting)}
    how = {"decoder": "net"} if model is P3GMSynthesizer else {}
    settings = {"epsilon": 20.0, "bounds": (-5, 5), "sampling_rate": 0.1, "steps": 20, "n_components": 2}
    fit = make_flat(model, delta=1e-6, random_state=0, **settings, **units, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PoissonLoader, "__init__", watched_init)
        patch.setattr(PoissonLoader, "_chunk", watched_chunk)
        fit.fit(X, y, **({} if weighting is None else {"groups": groups}))
    assert set(fit.classes_) == set("abc")
    # what takes part is what was counted, and no batch is longer than its places
    assert loaders[-1]._n_sampled * 0.1 < 1.1 * loaders[-1].plan.expected_batch_size
    assert len(batches) > 10
    assert max(batches) <= 1


def test_rows_that_were_counted_and_their_units():
    x, has_class = np.arange(8.0), np.array([1, 1, 0, 1, 1, 0, 0, 1], dtype=bool)
    units = np.array([0, 0, 1, 1, 2, 3, 3, 4])
    rows = types.SimpleNamespace(unit_codes=None, unit_sizes=None)
    found, none = counted_rows(rows, has_class, x)
    assert none is None
    np.testing.assert_array_equal(found, [0, 1, 3, 4, 7])
    rows.unit_codes = units
    found, of_rows = counted_rows(rows, has_class, x)
    np.testing.assert_array_equal(found, [0, 1, 3, 4, 7])
    np.testing.assert_array_equal(of_rows, [0, 0, 1, 2, 4])
    # where units count 1: half of unit 1 was counted, which has no place for it as a whole
    rows.unit_sizes = np.bincount(units)[units]
    found, of_rows = counted_rows(rows, has_class, x)
    np.testing.assert_array_equal(found, [0, 1, 4, 7])
    np.testing.assert_array_equal(of_rows, [0, 0, 2, 4])
    everything, _ = counted_rows(rows, np.ones(8, dtype=bool), x)
    assert everything is x
