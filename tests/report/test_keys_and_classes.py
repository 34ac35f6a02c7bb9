"""Reports of tables with keys, and with targets of whole numbers that are classes."""

import numpy as np
import pandas as pd
import pytest

from skdpgen.report import build_report
from skdpgen.tabular import Categorical, Identifier, Numeric, Schema

_RNG = np.random.default_rng(0)


def _rows(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=400)
    ill = (x + rng.normal(size=400) > 0).astype(np.int64)
    return pd.DataFrame({"key": rng.permutation(10**6)[:400], "x": x, "sex": rng.choice(list("fm"), 400), "ill": ill})


_COLUMNS = [Numeric("x"), Categorical("sex"), Numeric("ill", integer=True)]


def test_keys_of_a_schema_are_left_out_of_the_report():
    schema = Schema([Identifier("key"), *_COLUMNS])
    figures = build_report(_rows(1), _rows(2), schema=schema).figures
    alone = build_report(_rows(1).drop(columns="key"), _rows(2).drop(columns="key"), schema=Schema(_COLUMNS)).figures
    assert figures == pytest.approx(alone)


def test_whole_numbers_of_few_values_are_classes_unless_bounds_declare_a_quantity():
    rows = [_rows(seed).drop(columns="key") for seed in (1, 2)]
    for schema in (None, Schema(_COLUMNS)):
        assert "tstr_auroc" in build_report(*rows, schema=schema, target="ill").figures
    declared = Schema([*_COLUMNS[:2], Numeric("ill", (0, 1), integer=True)])
    assert "tstr_mae" in build_report(*rows, schema=declared, target="ill").figures
