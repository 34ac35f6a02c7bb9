"""Numbers of rows of units, real against synthetic."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.metrics import leak_note, rows_per_unit


def test_shares_of_units_by_their_number_of_rows():
    real = pd.DataFrame({"id": ["a", "a", "a", "b", "b", "c", None]})
    synthetic = pd.DataFrame({"id": [0, 1, 1, 2, 2]})
    found = rows_per_unit(real, synthetic, "id")
    assert found.index.tolist() == [1, 2, 3]
    np.testing.assert_allclose(found["real"], [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(found["synthetic"], [1 / 3, 2 / 3, 0])
    np.testing.assert_allclose(rows_per_unit(real, synthetic, "id", max_rows=2)["real"], [1 / 3, 2 / 3])


def test_tables_without_identifiers_are_refused():
    real = pd.DataFrame({"id": [1, 1]})
    for other in (pd.DataFrame({"x": [1]}), pd.DataFrame({"id": [None]})):
        with pytest.raises(ValueError, match="identifiers of units"):
            rows_per_unit(real, other, "id")
    assert "persons" in leak_note(rows_per_unit)
