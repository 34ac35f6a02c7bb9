"""P3GM with a network that refines the released decoder of a table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat

from skdpgen import LatentMixture, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators.product_mixture import TableModel
from skdpgen.generators.refined_table import RefinedTable
from skdpgen.nn import DPNet, P3GMModule, ParameterAverage, TableRefinementModule

RNG = np.random.default_rng(5)
N = 800
A, B = RNG.integers(0, 3, N), RNG.integers(0, 2, N)
FRAME = pd.DataFrame(
    {
        "a": np.array(["x", "y", "z"])[A],
        "b": B.astype(bool),
        "c": (A + B) % 3,  # each pair of a, b and c is independent, the three are not
        "d": np.where(RNG.random(N) < 0.5 + 0.3 * B, "yes", "no"),
    }
)
QUICK = {"epsilon": 20.0, "decoder": "net", "steps": 3, "sampling_rate": 0.5, "n_components": 3, "random_state": 0}
# steps of every record are priced in closed form
WHOLE = {**QUICK, "sampling_rate": 1.0}


def _net(**parameters):
    return DPNet(TableRefinementModule, module__n_hidden=8, **parameters)


@pytest.fixture(scope="module")
def synth():
    return make_flat(P3GMSynthesizer, **WHOLE, target="d").fit(FRAME)


def test_a_network_of_a_table_refines_the_released_decoder_by_default(synth):
    assert isinstance(synth.model_.latent_model, RefinedTable)
    assert synth.model_.net is None
    synth.card_.verify()
    assert synth.card_["fit"]["epsilon"] == pytest.approx(20.0, rel=1e-3)
    assert "gradients" in synth.card_["noise"]
    assert synth.accountant_.report()["release"].tolist()[-1] == "decoder"
    assert len(synth.sample(50)) == 50
    # the network changes the counts, so the summary states no error of them
    assert all(column.count_error is None for column in synth.summary_.columns)


@pytest.mark.parametrize("target", [None, "d"])
def test_a_step_size_of_zero_gives_exactly_the_released_model(target):
    model = make_flat(P3GMSynthesizer, **WHOLE, target=target, net=_net(lr=0.0)).fit(FRAME).model_.latent_model
    latent = RNG.normal(size=(6, model.points.shape[-1]))
    np.testing.assert_allclose(model.decode(latent), TableModel.decode(model, latent), atol=1e-6)
    for k in range(len(model.class_counts)):
        np.testing.assert_allclose(model.mixture(k), TableModel.mixture(model, k), atol=1e-6)


def test_without_noise_it_learns_what_two_way_tables_do_not_tell():
    settings = {**QUICK, "epsilon": np.inf, "steps": 60, "n_components": 3}
    released = make_flat(P3GMSynthesizer, **{**settings, "steps": 1}, net=_net(lr=1e-12)).fit(
        FRAME
    )  # from two-way tables alone
    refined = make_flat(P3GMSynthesizer, **settings, net=_net(lr=0.03, callbacks=[ParameterAverage(0.9)])).fit(FRAME)
    assert refined.score(FRAME) > released.score(FRAME) + 0.1
    drawn = refined.sample(4000, random_state=0)
    code = drawn["a"].map({"x": 0, "y": 1, "z": 2}) + drawn["b"].astype(int)
    assert (code % 3 == drawn["c"]).mean() > 0.45  # a third by chance


def test_rows_are_scored_and_conditioned_exactly(synth):
    model = synth.model_.latent_model
    codes, classes = synth.model_.codec.codes(FRAME[:5])
    offsets = model.offsets[:-1]
    expected = [
        np.log(model.mixture(k)[:, offsets + code].prod(axis=1).mean() * synth.class_ratio_[k])
        for code, k in zip(codes, classes)
    ]
    assert synth.score(FRAME[:5]) == pytest.approx(np.mean(expected), abs=1e-4)
    assert (synth.sample(40, given={"a": "y"})["a"] == "y").all()
    latent = synth.transform(FRAME[:5])
    assert synth.inverse_transform(latent).shape[0] == 5


def test_a_file_holds_the_refined_model(synth, tmp_path):
    path = tmp_path / "model.safetensors"
    synth.save(path)
    again = load(path)
    assert isinstance(again.model_.latent_model, RefinedTable)
    pd.testing.assert_frame_equal(again.sample(30, random_state=1), synth.sample(30, random_state=1))
    assert again.score(FRAME) == pytest.approx(synth.score(FRAME))


@pytest.mark.parametrize(
    "parameters",
    [{"net": DPNet(P3GMModule, module__latent_variance="zero")}, {"warm_start_steps": 0}],
    ids=str,
)
def test_parameters_of_a_whole_network_choose_one(parameters):
    synth = make_flat(P3GMSynthesizer, **WHOLE, **parameters).fit(FRAME)
    assert synth.model_.net is not None
    assert type(synth.model_.latent_model) is TableModel


ROWS = RNG.normal(size=(60, 3)).clip(-1, 1)
REFUSED = {
    "an array": ({"bounds": (-1, 1)}, ROWS, InvalidInputError, "for DataFrames without"),
    "a mixture": ({"prior": LatentMixture(n_iter=2)}, FRAME, InvalidInputError, "without a mixture"),
    "a warm start": ({"warm_start_steps": 3}, FRAME, ValueError, "warm_start_steps would do nothing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refinement_where_there_is_nothing_to_refine_is_refused_before_the_charge(name):
    parameters, rows, error, message = REFUSED[name]
    accountant = PrivacyAccountant(50.0, 1e-5)
    with pytest.raises(error, match=message):
        make_flat(P3GMSynthesizer, **WHOLE, **parameters, net=_net(), accountant=accountant).fit(rows)
    assert not accountant.charges


def test_the_plan_of_a_refinement_has_few_steps_of_large_batches():
    plan = P3GMSynthesizer(1.0, decoder="net", random_state=0).plan(FRAME)
    phase = {phase.label: phase for phase in plan.phases}["decoder"]
    assert (phase.sampling_rate, phase.steps) == (0.1, 150)
    assert phase.share == pytest.approx(0.25 * {phase.label: phase for phase in plan.phases}["moments"].share)
