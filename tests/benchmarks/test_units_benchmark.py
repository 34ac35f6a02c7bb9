"""The benchmark of persons with several rows: rows of one person are alike, and fits are beside one for a row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, units
from benchmarks.units import ROW_LEVEL, SIZES, give_units, units_benchmark
from skdpgen import datasets

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
AGES = pd.DataFrame({"age": np.random.default_rng(0).integers(17, 90, 20_000)})


@pytest.mark.parametrize("name", SIZES)
def test_persons_have_1_4_rows_on_average_and_these_are_alike(name):
    ids = give_units(AGES, SIZES[name], 0)
    n_rows = pd.Series(ids).value_counts()
    assert n_rows.sum() == len(AGES)
    assert n_rows.mean() == pytest.approx(1.4, rel=0.03)
    assert set(n_rows) <= set(SIZES[name][0]) | {n_rows.iloc[-1]}
    within = AGES["age"].groupby(ids).transform("mean").var()
    by_chance = AGES["age"].groupby(np.random.default_rng(1).permutation(ids)).transform("mean").var()
    assert within > 1.2 * by_chance  # what a person has is much of what rows differ in
    pd.testing.assert_series_equal(pd.Series(give_units(AGES, SIZES[name], 0)), pd.Series(ids))
    assert abs(np.corrcoef(ids, AGES["age"])[0, 1]) < 0.05  # an identifier says nothing of its rows


def test_every_case_is_fitted_once_beside_the_row_level(monkeypatch):
    bunch = datasets.load_breast_cancer_table()
    renamed = {bunch.schema.names[0]: "age"}
    frame = bunch.frame.rename(columns=renamed)
    schema = bunch.schema.rename(renamed) if hasattr(bunch.schema, "rename") else None
    monkeypatch.setattr(units, "load_adult", lambda data: Bunch(**{**bunch, "frame": frame, "schema": schema}))
    found = list(units_benchmark((ROW_LEVEL, "geometric"), k=(1, None), seeds=(0,), epsilon=20.0, rows=300))
    cases = [(result["distribution"], result["weighting"], result["k"]) for result in found]
    assert cases == [(ROW_LEVEL, "", ""), *[("geometric", w, k) for w in ("units", "rows") for k in (1, "learned")]]
    assert found[0]["k_used"] is None
    assert all(result["k_used"] >= 1 for result in found[1:])
    assert all(result["epsilon"] == pytest.approx(20.0, rel=1e-3) for result in found)
    assert set(BENCHMARKS["units"].figures) <= set(found[1])
    assert set(BENCHMARKS["units"].group_by) <= set(found[1])
