"""DataLens as an estimator: what is charged, what is released, and what is refused before."""

from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_refused_before_the_charge
from _fits import votes_are_one_release_a_step
from sklearn.datasets import load_digits

from skdpgen import DataLensSynthesizer

FITTED = ("arrays, signs", "arrays, signs, replace_one", "frame, signs", "frame, signs of units")
FAST = {
    "n_teachers": 9, "steps": 3, "generated_rows": 10, "n_largest": 7, "warm_start_steps": 2, "batch_size": 3,
    "hidden_layer_sizes": (6,), "teacher_sizes": (5,),
}  # fmt: skip
X, Y = load_digits(return_X_y=True)


def made(epsilon=3.0, **parameters):
    given = {"bounds": (0, 16), "classes": range(10), "random_state": 0, **FAST, **parameters}
    return DataLensSynthesizer(epsilon, **given)


def all_rows_of_a_step_are_one_release(relation, n_largest=7):
    """The noise is for 2 sqrt(n m)."""
    distance = 2 * np.sqrt(min(n_largest, 64) * 10)
    votes_are_one_release_a_step(made(neighboring=relation, n_largest=n_largest), (X, Y), (10, 64), distance)


@pytest.mark.parametrize("relation", RELATIONS)
def test_all_rows_of_a_step_are_one_release(relation):
    all_rows_of_a_step_are_one_release(relation)


def test_no_more_signs_are_charged_than_a_row_has_columns():
    all_rows_of_a_step_are_one_release("add_or_remove_one", n_largest=100)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"n_largest": 0}, "n_largest"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_the_charge(parameters, match):
    assert_refused_before_the_charge(made(None, **parameters), match, X, Y)
