"""No fit reads anything of its rows but through its releases, and each release is as bounded as it claims."""

from __future__ import annotations

import warnings
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from _noninterference import CASES, KINDS, PRODUCT, noninterference
from _sabotage import Claim
from _short_fits import short_postprocessing

from skdpgen import MomentSynthesizer
from skdpgen._base import PrivateEstimator
from skdpgen._types import BoundedSum
from skdpgen.accounting import Phase
from skdpgen.data import table_plan as _table_plan
from skdpgen.dpsgd import GradientNoise
from skdpgen.mechanisms import add_gaussian, histogram, release_names
from skdpgen.synthesizers import _array_model
from skdpgen.testing import check_noninterference
from skdpgen.testing._replay import difference, facts
from skdpgen.utils.noise import NoiseGenerator
from skdpgen.utils.watching import Replay, replay_releases


@pytest.mark.parametrize("name", CASES)
def test_a_fit_reads_its_rows_through_its_releases_alone(name):
    Claim(noninterference, name).holds_unpatched()


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCT)
def test_every_estimator_on_every_kind_of_data_reads_through_its_releases_alone(name):
    noninterference(name)


def test_the_exact_row_count_does_not_decide_which_moments_of_features_are_released():
    """One data set has more rows than the least number for moments of each class, and the other one fewer."""
    case = CASES["images, features"]
    many, few, _ = KINDS[case.kind]((450, 30))
    noise = case.estimator.plan(*many).noise_multipliers["features"]
    # rows of a class, of which there are at most five; and of a sub-cluster
    with patch.multiple(_array_model, _ROWS_APART=50 / noise, _ROWS_OF_PART=25 / noise):
        assert len(few[0]) < 50 < 5 * 50 < len(many[0])
        case.check()


class _Mean(PrivateEstimator):
    """Releases a histogram, and reads one thing more."""

    def __init__(
        self,
        fault=None,
        *,
        epsilon=1.0,
        delta=None,
        neighboring=None,
        accountant=None,
        noise="secure",
        random_state=None,
    ):
        self.fault, self.epsilon, self.delta = fault, epsilon, delta
        self.neighboring, self.accountant, self.noise = neighboring, accountant, noise
        self.random_state = random_state

    def _prepare(self, X, y, accountant):
        return X, self._calibrate(accountant, [Phase("counts", 1.0)])

    def fit(self, X, y=None):
        with self._fitting():
            accountant = self._resolve_accountant()
            X, plan = self._prepare(X, y, accountant)
            rng = self._charge(accountant, plan)
            codes = np.digitize(X[:, 0], [0.0, 1.0])
            if self.fault == "order":
                codes = np.where(np.arange(len(codes)) < 3, 0, codes)
            if self.fault == "first row" and X[0, 0] > 5:  # of neither data set, and of no row that is the last
                codes = np.where(np.arange(len(codes)) < 3, 0, codes)
            if self.fault == "others":
                codes = np.digitize(X[:, 0], [X[:, 0].mean(), np.inf])
            query = histogram(codes, 3)
            if self.fault == "bound after names":
                words = sorted(set(np.where(X[:, 0] < 0, "low", "high").tolist()))
                found = histogram(np.searchsorted(words, np.where(X[:, 0] < 0, "low", "high")), len(words))
                release_names(words, found, 1.0, 1e-3, rng, accountant.neighboring)
            if self.fault in ("bound", "bound after names"):
                query = replace(query, value=2 * query.value)
            if self.fault == "infinite":  # a sum that one row turns into no number
                value = np.where(X.min() < -8, np.nan, query.value.astype(float))
                query = replace(query, value=value, lattice=None)
            noise, relation = plan.noise_multipliers["counts"], accountant.neighboring
            if self.fault == "noise" and len(X) > 30:
                noise = 2 * noise
            if self.fault == "relation" and len(X) > 30:
                relation = "replace_one"
            if self.fault == "weight" and len(X) > 30:
                query = replace(query, weights=0.5)
            self.counts_ = add_gaussian(query, noise, rng, relation)
            if self.fault == "own noise":
                self.counts_ = query.value + rng.standard_normal(3)
            if self.fault == "type":
                self.counts_ = self.counts_.astype("f4" if X.min() > 0 else "f8")
            if self.fault == "closure":
                largest = float(X.max())
                self.clip_ = lambda: largest
            self._issue_card(plan, rng, [])
            if self.fault == "one fact more" and len(X) == 25:
                self.few_ = True
            if self.fault == "one fact less" and len(X) == 40:
                self.many_ = True
            if self.fault == "one warning more" and len(X) == 25:
                warnings.warn("few rows", UserWarning, stacklevel=2)
        return self


_UNRELATED = ((np.linspace(0.1, 3, 40)[:, None],), (np.linspace(-9, 0.5, 25)[:, None],))


def test_an_honest_fit_passes_from_arrays_and_back():
    one, other = _UNRELATED
    for pair in ((one, other), (other, one)):
        check_noninterference(_Mean(), *pair)
        check_noninterference(lambda: _Mean(epsilon=3.0), *pair)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("order", "order of rows"),
        ("others", "query 1"),
        ("bound", "2 of its sensitivity"),
        ("bound after names", "query 3: one row moves it by 2 of its sensitivity"),
        ("infinite", "query 1: one row moves it by inf"),
        ("noise", "query 1 has another noise_multiplier"),
        ("relation", "query 1 has another neighboring"),
        ("weight", "query 1 has another weights"),
        ("own noise", "counts_"),
        ("type", "counts_"),
        ("closure", "clip_"),
        ("one fact more", "attributes differ"),
        ("one fact less", "attributes differ"),
        ("one warning more", "warning 0"),
    ],
)
def test_each_uncharged_read_is_told_by_its_place_and_no_value(fault, told):
    with pytest.raises(AssertionError, match=told):
        check_noninterference(_Mean(fault), *_UNRELATED)


def test_a_row_that_joins_stands_first_and_in_the_middle_too():
    """What the first row decides shows where an unusual row is the first; order of the other rows does not show it."""
    rows = (np.array([[7.0]]),)
    check_noninterference(_Mean("first row"), *_UNRELATED)
    check_noninterference(_Mean(), *_UNRELATED, rows=rows)
    with pytest.raises(AssertionError, match="query 1 follows from the place of a row that joins"):
        check_noninterference(_Mean("first row"), *_UNRELATED, rows=rows)


def test_data_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="number of rows is public"):
        check_noninterference(_Mean(neighboring="replace_one"), *_UNRELATED)


def test_exact_sums_are_shown_under_seeded_noise_alone():
    class Curious(Replay):
        def release(self, released, sd, kind, query):
            raise AssertionError("the sum of a private release was shown")

    query = histogram(np.zeros(5, dtype=int), 1)
    with replay_releases(Curious()):
        for rng in (NoiseGenerator("secure"), NoiseGenerator("fast"), np.random.default_rng(0)):
            with pytest.raises(RuntimeError, match="seeded noise alone"):
                add_gaussian(query, 1.0, rng, "add_or_remove_one")
        noise = GradientNoise([torch.Size([2])], 1.0, NoiseGenerator("secure"), steps=1)
        with noise, pytest.raises(RuntimeError, match="seeded noise alone"):
            noise.release(BoundedSum([torch.zeros(2)], add_or_remove_one=1.0))


def test_a_fit_in_the_harness_leaves_no_private_card_and_the_callers_generators_alone():
    seen, state = [], np.random.get_state()[1].copy()  # noqa: NPY002

    class Told(_Mean):
        def fit(self, X, y=None):
            super().fit(X, y)
            seen.append(self.card_["private"])
            return self

    check_noninterference(Told(), *_UNRELATED)
    assert seen
    assert not any(seen)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_facts_tell_values_types_and_what_closures_and_modules_hold():
    def holder(value):
        return lambda: value

    pairs = [
        (1, 1.0), (1, True), (0.0, -0.0), (np.float32(1), np.float64(1)), (np.zeros(2), np.zeros(2, dtype="f4")),
        (np.array(["a"]), np.array(["a"], dtype="<U3")), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (holder(1), holder(2)),
        (pd.Series([1]), pd.Series([1.0])), (pd.Series([1], name="a"), pd.Series([1], name="b")),
        (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)), (np.random.default_rng(0), np.random.default_rng(1)),
    ]  # fmt: skip
    for one, other in pairs:
        assert difference(facts(one, "x"), facts(other, "x")) is not None
        assert difference(facts(one, "x"), facts(one, "x")) is None


def test_the_type_of_a_learned_category_follows_from_no_other_row_of_a_chunk():
    """A reader of chunks gives whole numbers where none is missing, and floats where one is.

    The dtypes of the first chunk are public; those of the others are not.
    """

    def read(frame):
        first, rest = frame.iloc[:20], frame.iloc[20:]
        return [first, rest if rest["code"].isna().any() else rest.astype({"code": "int64"})]

    def table(n, missing):
        frame = pd.DataFrame({"size": np.linspace(0, 5, n), "code": np.resize([0.0, 1.0, 2.0], n)})
        frame.loc[frame.index[missing], "code"] = np.nan
        return (frame,)

    synthesizer = MomentSynthesizer(60.0, target="code", target_type="categorical", random_state=0)
    whole, first, second = table(90, []), table(60, [3]), table(60, [33])
    with short_postprocessing():
        for pair in ((whole, first), (whole, second), (first, second), (second, first)):
            check_noninterference(synthesizer, *pair, source=read)


def test_ties_between_categories_are_broken_by_no_order_of_rows(monkeypatch):
    monkeypatch.setattr(_table_plan, "_ROOM", ((16, 2),))
    Claim(noninterference, "frame").check()
