"""Labels in a list, which has no dtype: no row decides the type of the classes."""

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPGaussianMixture, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PriVAESynthesizer
from skdpgen.data.labels import with_dtype
from skdpgen.exceptions import InvalidInputError
from skdpgen.model_selection import PrivateSearchCV
from skdpgen.nn import DPNetClassifier

ESTIMATORS = {
    "moment": lambda accountant: MomentSynthesizer(1.0, bounds=(0, 1), accountant=accountant),
    "p3gm": lambda accountant: P3GMSynthesizer(1.0, bounds=(0, 1), accountant=accountant),
    "privae": lambda accountant: PriVAESynthesizer(1.0, bounds=(0, 1), accountant=accountant),
    "mixture": lambda accountant: DPGaussianMixture(2, epsilon=1.0, bounds=(0, 1), accountant=accountant),
    "classifier": lambda accountant: DPNetClassifier(1.0, bounds=(0, 1), accountant=accountant),
    "search": lambda accountant: PrivateSearchCV(
        MomentSynthesizer(bounds=(0, 1)), {"n_components": [1, 2]}, scoring="tstr_accuracy", accountant=accountant
    ),
}


@pytest.mark.parametrize("odd", ["CANARY", 0.5, 2**63, -(2**70), True, b"x", 1j], ids=repr)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_label_of_another_kind_in_a_list_is_refused_before_the_charge(rng, name, odd):
    accountant = PrivacyAccountant(10.0, 1e-4)
    labels = [*rng.integers(0, 2, 399).tolist(), odd]
    with pytest.raises(InvalidInputError, match="of one kind") as refused:
        ESTIMATORS[name](accountant).fit(rng.random((400, 2)), labels)
    assert "CANARY" not in str(refused.value)
    assert not accountant.charges


@pytest.mark.parametrize("odd", ["CANARY", 0.5, 2**63, True], ids=repr)
def test_one_label_of_another_kind_beside_a_frame_is_refused_before_the_charge(rng, odd):
    accountant = PrivacyAccountant(10.0, 1e-4)
    frame = pd.DataFrame(rng.random((400, 2)), columns=["a", "b"])
    with pytest.raises(InvalidInputError, match="of one kind"):
        MomentSynthesizer(1.0, accountant=accountant).fit(frame, [*rng.integers(0, 2, 399).tolist(), odd])
    assert not accountant.charges


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ([0, 1, 1], np.int64),
        ((np.uint8(3), 4, np.int32(5)), np.int64),
        ([True, False], np.bool_),
        ([0.0, np.float32(1.5)], np.float64),
        (["a", "bc"], np.dtype("<U2")),
        ([[1], [2]], np.int64),
        (range(3), np.int64),
    ],
)
def test_labels_of_one_kind_in_a_list_have_its_dtype(labels, dtype):
    found = with_dtype(labels)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.asarray(labels))


def test_arrays_and_series_keep_their_dtype():
    for given in (np.array([0, 1], dtype=np.uint8), pd.Series([0.5, 1]), pd.Series(["a", None]).array):
        assert with_dtype(given) is given


@pytest.mark.parametrize("labels", [[[0], [1, 2]], [0, None], [0.5, np.nan], ["a", pd.NaT]])
def test_ragged_and_missing_labels_are_refused(labels):
    with pytest.raises(InvalidInputError):
        with_dtype(labels)
