"""Every sabotage of the proofs of rounding is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dp_pca
import test_exact_tables
import test_image_poses
import test_noise_and_plan
import test_noise_of_steps
import test_scaling_blocks
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen._base import PrivateEstimator
from skdpgen.accounting import _calibration
from skdpgen.data import image_poses, table_plan
from skdpgen.decomposition import PrincipalComponents
from skdpgen.dpsgd import _plan
from skdpgen.mechanisms import _gaussian
from skdpgen.mixture import _em
from skdpgen.model_selection import PrivateSearchCV
from skdpgen.synthesizers import DP2VAESynthesizer
from skdpgen.synthesizers._gs_wgan import GradientReleases
from skdpgen.utils import blocks

LATTICE = Claim(test_noise_and_plan.the_clip_leaves_room_for_the_lattice_of_large_noise)
REFUSED = {
    name: Claim(test_noise_of_steps.noise_too_large_for_gradients_is_refused_before_the_charge, name)
    for name in test_noise_of_steps.TRAINED
}
SEARCH = Claim(test_noise_of_steps.noise_of_a_candidate_that_is_too_large_is_refused_before_the_charge)
POSES = Claim(test_image_poses.test_no_bit_of_an_upright_image_depends_on_other_images, 1)
WHITENED = Claim(test_scaling_blocks.whitened_rows_of_em_follow_no_order_of_addition, 30)
PROJECTED = Claim(test_dp_pca.projected_rows_follow_no_order_of_addition)
NORMS = Claim(test_scaling_blocks.a_norm_is_one_function_of_its_row, 9216)
EXACT_TABLES = Claim(test_exact_tables.more_rows_than_tables_count_exactly_are_refused_before_the_charge, "units")
PRODUCT = Claim(test_scaling_blocks.an_exact_product_of_many_terms_is_one_function_of_each_row)

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "the lattice as a share of the clip, and not of the bound",
        [LATTICE],
        (_plan.slack_of_sums, ("(1 + $a) / (1 - $b) - 1", "$a + $b")),
    ),
    (
        "no slack for the lattice",
        [LATTICE],
        (_plan.slack_of_sums, ("(1 + $a) / (1 - $b) - 1", "$a")),
    ),
    (
        "noise of any size",
        [LATTICE],
        (_calibration.check_noise_of_steps, ("$z <= _MOST_NOISE_OF_STEPS", "True")),
    ),
    (
        "noise of subsets of any size",
        [LATTICE],
        (_plan.slack_of_sums, ("check_noise_of_steps($z)", "pass")),
    ),
    (
        "noise that is refused after the charge",
        [REFUSED[name] for name in ("P3GM", "PriVAE", "classifier")],
        (PrivateEstimator._calibrate, ("check_noise_of_steps($z)", "pass")),
    ),
    (
        "noise of gradients of critics that is refused after the charge",
        [REFUSED["GS-WGAN"]],
        (GradientReleases.bound, ("check_noise_of_steps($z)", "pass")),
    ),
    (
        "noise of subsets that is refused after the charge",
        [REFUSED["DP2-VAE, subsets in turn"]],
        (DP2VAESynthesizer._prepare, ("check_noise_of_steps($z)", "pass")),
    ),
    (
        "noise of candidates that is refused after the charge",
        [SEARCH],
        (PrivateSearchCV._prepare, ("$e._planned($X, $y, CalibratedFit($fit), $g, checked=True)", "pass")),
    ),
    # ---- upright images
    (
        "a background of all images together",
        [POSES],
        (image_poses._background, ("np.median($b, axis=1)", "np.median($b, axis=(0, 1))[None]")),
    ),
    (
        "moments of a figure by products that round",
        [POSES],
        (image_poses.poses_of, ("exact_product($w, $p)", "$w @ $p")),
    ),
    # ---- products
    (
        "products of any number of terms in one sum",
        [PRODUCT],
        (blocks.exact_product, ("$rows[:, :_TERMS] @ $m[:_TERMS]", "$rows @ $m"), ("range($a, $b, $c)", "()")),
    ),
    (
        "squares of all columns added at once",
        [NORMS],
        (
            _gaussian.row_norms,
            ("range(0, $rows.shape[1], _NORM_COLUMNS)", "range(1)"),
            ("$first + _NORM_COLUMNS", "None"),
        ),
    ),
    (
        "responsibilities by a product that is rounded",
        [WHITENED],
        (_em.dp_em, ("exact_product($rows / $radius, $matrix * $radius)", "$rows @ $matrix")),
    ),
    (
        "projected rows by a product that is rounded",
        [PROJECTED],
        (
            PrincipalComponents.project,
            ("finer_product(($rows - $offset) / $scale, $m)", "($rows - $offset) / $scale @ $m"),
        ),
    ),
    (
        "tables of more rows than are counted exactly",
        [EXACT_TABLES],
        (table_plan.check_exact_tables, ("$n_rows > $most", "False")),
    ),
    (
        "tables of units of as many rows as of other tables",
        [EXACT_TABLES],
        (
            table_plan.check_exact_tables,
            ("most_rows_of_tables($a, $b, $weighted)", "most_rows_of_tables($a, $b, False)"),
        ),
    ),
    (
        "entries of any size in an exact product",
        [PRODUCT],
        (blocks.exact_product, ("np.clip($r, $low, $high, out=$r)", "pass")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_proofs_of_rounding_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
