"""Every sabotage of DP-CGAN is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dpcgan
from _fits import ledger_is_what_ran, nothing_private_is_kept, the_row_count_is_hidden
from _noninterference import noninterference
from _sabotage import LEARNED, Claim, after, assert_caught, mutant_ids

from skdpgen.dpsgd import ClippedSum
from skdpgen.dpsgd._plan import plan_of_fit
from skdpgen.nn._gan import DiscriminatorModule
from skdpgen.nn._networks import ToImage
from skdpgen.synthesizers import _dpcgan
from skdpgen.synthesizers._training import sizes_by_counts

AR = "add_or_remove_one"
WHOLE = Claim(test_dpcgan.the_whole_gradient_of_a_row_is_clipped, "dense", AR)
IMAGES = Claim(test_dpcgan.the_whole_gradient_of_a_row_is_clipped, "images", AR)
AVERAGED = Claim(test_dpcgan.the_whole_gradient_of_a_row_is_clipped, "averaged images", AR)
ARRAYS, REPLACED, FRAME = test_dpcgan.FITTED
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_dpcgan.FITTED}
KEPT = [Claim(nothing_private_is_kept, ARRAYS)]
HIDDEN = Claim(the_row_count_is_hidden, ARRAYS)
RELEASES_ALONE = Claim(noninterference, "adversary")

FIT = _dpcgan.fit_dpcgan_model
SEEN = after(LEARNED, "seen, of_class = ($x, $classes)")

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "each tensor clipped by its own norm, as in the published code",
        [WHOLE, IMAGES],
        (
            ClippedSum._square_norms_of,
            (
                "$found = sum(($rule.square_norms for $_, $rule in $rules), $zeros)",
                "$found = max(($rule.square_norms for $_, $rule in $rules), key=lambda norm: float(norm.sum()))",
            ),
        ),
    ),
    (
        "an accountant that is given the standard deviation as the multiplier",
        [LEDGER[ARRAYS], LEDGER[FRAME]],
        (FIT, ("$fit.noise['training']", "$fit.noise['training'] / $2.training.gradient_bound")),
    ),
    (
        "a step of the discriminator more than was charged",
        [LEDGER[ARRAYS], LEDGER[REPLACED]],
        (plan_of_fit, ("$training.steps", "$training.steps + 1")),
    ),
    (
        "the exact size of a batch",
        [LEDGER[ARRAYS]],
        (sizes_by_counts, ("$fit.step_size($row_count, $counted)", "Count(float(len($2)), float(len($2)))")),
    ),
    (
        "the exact number of rows",
        [HIDDEN],
        (sizes_by_counts, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
    (
        "labels of generated rows by the exact shares of the classes",
        [RELEASES_ALONE],
        (
            FIT,
            SEEN,
            (
                "$make($generator, $weights, n_critic=$n_critic, learning_rate=$rate, n_rows=$n, seed=$seed, "
                "average=$decay)",
                "$make($generator, np.bincount(of_class + 1)[1:] + 1.0, n_critic=$n_critic, learning_rate=$rate, "
                "n_rows=$n, seed=$seed, average=$decay)",
            ),
        ),
    ),
    (
        "as many generated rows as private ones",
        [RELEASES_ALONE],
        (FIT, SEEN, ("_GENERATED_ROWS", "len(seen)")),
    ),
    (
        "a generator that starts from private rows",
        [RELEASES_ALONE],
        (
            FIT,
            SEEN,
            after(
                "$generator = _make_generator($rest)",
                "list($generator.parameters())[-1].data.add_(float(seen.mean()))",
            ),
        ),
    ),
    (
        "private rows kept beside the generator",
        KEPT,
        (FIT, SEEN, after("$model = GeneratorModel($rest)", "$model.rows = seen[:3]")),
    ),
    (
        "a loss that mixes the rows of a batch",
        [WHOLE],
        (DiscriminatorModule.forward, ("$self.scores($x)", "$self.scores($x - $x.mean(0))")),
    ),
    (
        "images less the mean of their batch",
        [IMAGES, AVERAGED],
        (
            ToImage.forward,
            ("$x.reshape(-1, $height, $width, $channels)", "($x - $x.mean(0)).reshape(-1, $height, $width, $channels)"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_dp_cgan_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
