"""Wide tables: moments of scores where the noise hides tables of two columns."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_sensitivity
from _short_fits import short_postprocessing

import skdpgen
from skdpgen import MomentSynthesizer, P3GMSynthesizer, Schema
from skdpgen.data.frame_codec import FrameCodec
from skdpgen.data.scores import Scores, score_moments
from skdpgen.exceptions import UtilityWarning
from skdpgen.generators.scores import ScoreModel, fit_scores
from skdpgen.tabular import Binning, Categorical, Numeric, TableEncoder
from skdpgen.testing import seeded_noise

RNG = np.random.default_rng(4)


def _wide(n=20_000, m=80):
    factors = RNG.standard_normal((n, 3))
    values = 0.8 * factors[:, np.arange(m) % 3] + 0.6 * RNG.standard_normal((n, m))
    frame = pd.DataFrame(values.clip(-4, 4), columns=[f"c{j}" for j in range(m)])
    frame["c0"] = np.exp(frame["c0"]).clip(0, 50)
    frame.loc[RNG.random(n) < 0.2, "c1"] = np.nan
    frame["c2"] = np.where(frame["c2"] > 0.5, "high", np.where(frame["c2"] > -0.5, "middle", "low"))
    frame["label"] = factors[:, 0] + factors[:, 1] > 0
    columns = [Numeric(f"c{j}", (-4, 4)) for j in range(m)]
    columns[0], columns[1] = Numeric("c0", (0, 50)), Numeric("c1", (-4, 4), missing=True)
    columns[2] = Categorical("c2", ("low", "middle", "high"), missing=True, other="other", dtype="object")
    return frame, Schema([*columns, Categorical("label", (False, True), dtype="bool")])


FRAME, SCHEMA = _wide()


@pytest.fixture(scope="module")
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none of independence, where scores tell more
        return MomentSynthesizer(0.6, schema=SCHEMA, target="label", random_state=0).fit(FRAME)


def test_a_wide_table_keeps_marginals_correlations_and_what_they_say_of_the_target(fitted):
    assert isinstance(fitted.model_.latent_model, ScoreModel)
    drawn = fitted.sample(10_000, random_state=0)
    assert drawn["c1"].isna().mean() == pytest.approx(0.2, abs=0.1)
    assert set(drawn["c2"]) == {"low", "middle", "high"}
    share = FRAME["c2"].value_counts(normalize=True)
    assert drawn["c2"].value_counts(normalize=True).sub(share).abs().max() < 0.05
    numbers = [f"c{j}" for j in range(3, 80)]
    real, synthetic = FRAME[numbers], drawn[numbers]
    # the half of the columns that is told best: of one column alone the noise may leave little
    assert np.median(np.abs(synthetic.mean() - real.mean()) / real.std()) < 0.25
    assert 0.5 < np.median(synthetic.std() / real.std()) < 1.5
    real, synthetic = (rows[numbers].corr().to_numpy() for rows in (FRAME, drawn))
    assert np.sqrt(np.mean((real - synthetic) ** 2)) < 0.12  # .37 were they independent
    real, synthetic = (rows.groupby("label")[numbers].mean().diff().iloc[-1] for rows in (FRAME, drawn))
    assert (synthetic - real).abs().mean() < 0.12  # .61 did they say nothing of it


def test_a_wide_model_is_saved_scored_and_conditioned_like_others(fitted, tmp_path):
    fitted.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(*(s.sample(50, random_state=1) for s in (fitted, again)))
    assert fitted.score(FRAME[:500]) > fitted.score(FRAME[:500].assign(c5=4.0))
    drawn = fitted.sample(3000, given={"c3": (1.0, None), "c1": None})
    assert (drawn["c3"] >= 1).all()
    assert drawn["c1"].isna().all()
    assert drawn["c6"].mean() > 0.4  # of the same factor
    assert drawn["label"].mean() > 0.65


def test_a_wide_table_has_a_model_of_the_target_too(fitted):
    synth = MomentSynthesizer(0.7, schema=SCHEMA, target="label", random_state=0, budget_split={"target": 0.3})
    synth.fit(FRAME)
    assert isinstance(synth.model_.latent_model, ScoreModel)
    rows, plain = (s.sample(10_000, random_state=0) for s in (synth, fitted))
    numbers = [f"c{j}" for j in range(3, 80)]
    assert rows[numbers].corr().sub(plain[numbers].corr()).abs().mean().mean() < 0.1
    real, synthetic = (r.groupby("label")[numbers].mean().diff().iloc[-1] for r in (FRAME, rows))
    assert np.corrcoef(real, synthetic)[0, 1] > 0.8


def test_latents_of_a_model_of_scores_go_there_and_back():
    with short_postprocessing():
        synth = P3GMSynthesizer(0.6, schema=SCHEMA, target="label").fit(FRAME)
    assert isinstance(synth.model_.latent_model, ScoreModel)
    latent = synth.transform(FRAME[:2000])
    assert latent.shape == (2000, synth.model_.n_latent)
    back = synth.inverse_transform(latent)
    assert list(back.columns) == list(SCHEMA.names)
    assert np.corrcoef(back["c5"], FRAME["c5"][:2000])[0, 1] > 0.5


def test_a_small_table_of_few_columns_is_told_by_its_one_way_tables():
    small = SCHEMA.select(["c0", "c1", "c2", "c3", "label"])
    with seeded_noise(3, quiet=True), pytest.warns(UtilityWarning, match="independent within a class"):
        synth = MomentSynthesizer(0.2, schema=small, target="label").fit(FRAME[list(small.names)][:1500])
    assert not isinstance(synth.model_.latent_model, ScoreModel)


def _scores(importance=(1.0, 1.0, 1.0)):
    binning = Binning((0.0, 1.0, 2.0, 8.0), (0, 1, 2), (0.6, 0.3, 0.1))
    schema = Schema([Numeric("a", (0, 8), missing=True), Numeric("b", (0, 8)), Categorical("c", ("x", "y", "z"))])
    codec = FrameCodec(TableEncoder(schema, binnings={"a": binning, "b": Binning.equal_width(schema["b"], 5)}).fit())
    return Scores.of_codec(codec, importance)


def test_scores_are_standard_and_a_missing_number_has_a_flag():
    scores = _scores()
    mass = np.array([0.6, 0.3, 0.1])
    assert mass @ scores.matrix[:3, 0] == pytest.approx(0)
    assert mass @ scores.matrix[:3, 0] ** 2 == pytest.approx(1)
    assert scores.matrix[3, :2].tolist() == [0, 1]
    np.testing.assert_allclose(np.diff(scores.matrix[4:9, 2]), 12**0.5 / 5)
    np.testing.assert_array_equal(scores.matrix[9:, 3:], np.eye(3))
    codes = np.array([[3, 4, 2], [0, 0, 0]])
    np.testing.assert_allclose(scores.of_codes(codes)[0], scores.matrix[3] + scores.matrix[8] + scores.matrix[11])


@pytest.mark.parametrize("importance", [(1.0, 1.0, 1.0), (16.0, 0.2, 1.0)])
@pytest.mark.parametrize("relation", RELATIONS)
def test_moments_of_scores_attain_their_sensitivity_and_never_exceed_it(rng, relation, importance):
    scores = _scores(importance)
    base, y = np.stack([rng.integers(0, k, 12) for k in (4, 5, 3)], axis=1), rng.integers(0, 2, 12)
    # the longest row is clipped to the bound: alone it attains what one row can add
    units = [(row, k) for row in ([2, 4, 0], [2, 0, 1], [3, 2, 2]) for k in (0, 1)]
    joined = [(np.vstack([base, row]), np.append(y, k)) for row, k in units]
    pairs = [((base, y), more) for more in joined]
    if relation == "replace_one":
        pairs = [(joined[0], other) for other in joined]
    assert_sensitivity(
        lambda data: score_moments(data[0], scores, data[1], 2), pairs, attained=pairs, relation=relation
    )


def test_weights_of_scores_are_those_that_make_the_weighted_errors_least():
    importance = np.array([16.0, 0.2, 1.0])
    scores = _scores(importance)
    assert scores.weights.tolist() == [2.0, 2.0, 0.2**0.25, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(scores.of_codes(np.array([[3, 0, 2]]))[0, [1, 5]], [2.0, 1.0])

    def error(weights):  # of second moments, by the product of two importances, at one bound of the norm
        return (
            np.square(weights).sum() ** 2
            * np.outer(importance, importance).ravel()
            @ (1 / np.square(np.outer(weights, weights)).ravel())
        )

    best = importance**0.25
    for factor in np.exp(np.random.default_rng(0).normal(0, 0.2, (50, 3))):
        assert error(best * factor) >= error(best) * (1 - 1e-12)


def test_importance_of_a_column_moves_noise_from_its_scores_to_those_of_others(monkeypatch):
    from skdpgen.synthesizers import _frame_model

    seen = []

    def watched(released, noise_sd, scores, *args, **kwargs):
        seen.append(noise_sd * scores.l2_bound**2 / np.outer(scores.weights, scores.weights))
        return fit_scores(released, noise_sd, scores, *args, **kwargs)

    monkeypatch.setattr(_frame_model, "fit_scores", watched)
    for importance in (None, {"c0": 50.0}):
        with short_postprocessing():
            MomentSynthesizer(0.6, schema=SCHEMA, target="label", importance=importance).fit(FRAME)
    plain, wanted = seen
    assert wanted[0, 0] < 0.5 * plain[0, 0]
    assert wanted[0, -1] < 0.8 * plain[0, -1]
    assert wanted[-1, -1] > 1.02 * plain[-1, -1]


@pytest.mark.parametrize("preferred", [False, True])
def test_too_many_scores_are_left_to_one_way_tables(monkeypatch, preferred):
    from skdpgen.data import frames, scores

    if preferred:
        monkeypatch.setattr(frames, "prefers_scores", lambda *_: True)
    monkeypatch.setattr(scores, "_MOST_SCORES", 10)
    with short_postprocessing(), pytest.warns(UtilityWarning, match="independent"):
        synth = MomentSynthesizer(0.2, schema=SCHEMA, target="label").fit(FRAME[:10_000])
    assert not isinstance(synth.model_.latent_model, ScoreModel)
