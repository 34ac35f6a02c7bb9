"""Ids of DP2-VAE: the unit stays one row, and what would move two subsets is refused before it is paid."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _sabotage import Claim, assert_caught

from skdpgen import DP2VAESynthesizer, PrivacyAccountant
from skdpgen.dpsgd import _subsets as subsets
from skdpgen.dpsgd._subsets import hash_subsets
from skdpgen.exceptions import InvalidInputError
from skdpgen.utils.noise import make_noise_generator

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
SMALL = {"n_subsets": 20, "pretrain_steps": 2, "steps": 3, "n_components": 2, "random_state": 0, "warm_start_steps": 0}
ROWS = np.random.default_rng(0).normal(size=(60, 2))
IDS = np.random.default_rng(1).permutation(10**6)[:60]


def _refused(told, ids=IDS, error=ValueError, **parameters):
    accountant = PrivacyAccountant(5.0, neighboring=parameters.pop("neighboring", "add_or_remove_one"))
    frame = pd.DataFrame(ROWS, columns=["a", "b"]).assign(who=ids)
    for data, column in ((frame, "who"), (frame.to_numpy(), 2)):
        model = make_flat(DP2VAESynthesizer, 1.0, **SMALL, id_column=column, accountant=accountant, **parameters)
        with pytest.raises(error, match=told):
            model.fit(data)
    assert not accountant.charges


def test_a_replaced_record_with_another_id_would_move_two_subsets():
    """Which is why ids are for add_or_remove_one: one subset is what a step pays for."""
    drawn = make_noise_generator().random_bytes(32)

    class Key:
        def random_bytes(self, n):
            return drawn

    before = np.bincount(hash_subsets(IDS, 1000, Key()), minlength=1000)
    after = np.bincount(hash_subsets([*IDS[:-1], 10**7], 1000, Key()), minlength=1000)
    assert np.abs(before - after).sum() in (0, 2)  # 0: both ids in one subset, once in 1,000 keys
    _refused("two subsets change", neighboring="replace_one")


def test_repeated_ids_are_refused():
    _refused("unique", ids=np.arange(60) // 2 + 7, error=InvalidInputError)
    _refused("unique", ids=np.where(np.arange(60) == 59, IDS[0], IDS), error=InvalidInputError)


def test_rows_to_be_scored_may_have_any_ids():
    x = np.column_stack([ROWS, IDS])
    fitted = make_flat(DP2VAESynthesizer, 3.0, **SMALL, id_column=2).fit(x)
    assert np.isfinite(fitted.score(np.vstack([x, x])))
    assert any("unique" in text for text in fitted.card_["public_assumptions"])


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        (
            Claim(test_a_replaced_record_with_another_id_would_move_two_subsets),
            (DP2VAESynthesizer._prepare, ('$accountant.neighboring == "replace_one"', "False")),
        ),
        (Claim(test_repeated_ids_are_refused), (subsets.check_ids, ("len(set($coded)) < $n", "False"))),
    ],
    ids=["ids under replace_one", "repeated ids"],
)
def test_sabotage_of_ids_is_caught(monkeypatch, claim, change):
    assert_caught(monkeypatch, [claim], change)
