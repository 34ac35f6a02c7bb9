"""Rows that may be images, by public facts alone, are pointed out before the charge."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from skdpgen import (
    DPSGD,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PriVAESynthesizer,
    Schema,
)
from skdpgen.data.arrays import check_image_shape, point_out_images
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.tabular import Categorical, Numeric

HINT = "if the rows are images"


def hints(bounds):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        point_out_images(bounds)
    return [str(warning.message) for warning in said if HINT in str(warning.message)]


def bounds_of(n_features, low=0.0, high=1.0):
    return np.full(n_features, low), np.full(n_features, high)


@pytest.mark.parametrize(("n_features", "shape"), [(784, "(28, 28)"), (256, "(16, 16)"), (3072, "(32, 32, 3)")])
def test_a_square_and_three_squares_of_one_range_are_pointed_out(n_features, shape):
    (said,) = hints(bounds_of(n_features))
    assert f"image_shape={shape}" in said


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_table_of_so_many_columns_of_one_dtype_is_pointed_out_before_the_charge():
    pixels = pd.DataFrame(np.zeros((30, 256), dtype="uint8")).rename(columns="pixel{}".format)
    model = MomentSynthesizer(1.0, target="digit")
    (said,) = warnings_of(lambda: model.plan(pixels.assign(digit="a")), HINT)
    assert "256 columns of one dtype, uint8" in said
    assert "X.to_numpy()" in said
    assert "image_shape=(16, 16) and bounds=" in said
    assert not warnings_of(lambda: model.plan(pixels.astype({"pixel3": float}).assign(digit="a")), HINT)
    assert not warnings_of(lambda: model.plan(pixels.iloc[:, 1:].assign(digit="a")), HINT)
    assert not warnings_of(lambda: model.plan(pixels.assign(digit="a", ward="b")), HINT)


@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer, DPCGANSynthesizer])
def test_images_in_a_data_frame_are_refused_with_the_array_to_give(make):
    model = make(epsilon=1.0, image_shape=(8, 8), bounds=(0, 16))
    with pytest.raises(InvalidInputError, match=r"image_shape= is for arrays.*X\.to_numpy\(\), and the classes as y"):
        model.fit(pd.DataFrame(np.zeros((30, 64))))


@pytest.mark.parametrize("n_features", [0, 1, 64, 225, 783, 785, 3 * 225])
def test_other_numbers_of_columns_are_not(n_features):
    assert not hints(bounds_of(n_features))


def test_columns_of_several_ranges_or_of_none_are_not():
    low, high = bounds_of(784)
    high[3] = 2
    assert not hints((low, high))
    assert not hints((np.full(784, np.nan),) * 2)
    assert not hints(None)


@pytest.mark.parametrize(
    "synthesizer",
    [make(bounds=(0, 1)) for make in (P3GMSynthesizer, MomentSynthesizer, DP2VAESynthesizer, DPMERFSynthesizer)],
    ids=lambda synthesizer: type(synthesizer).__name__,
)
def test_models_of_images_points_them_out_before_the_charge(synthesizer):
    accountant = PrivacyAccountant(1.0, 1e-5)
    synthesizer.set_params(accountant=accountant)
    X = np.random.default_rng(0).random((30, 256))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", HINT)
        with pytest.raises(UtilityWarning, match=r"declare image_shape=\(16, 16\)"):
            synthesizer.fit(X)
    assert accountant.epsilon_spent() == 0  # where warnings are errors, the fit is refused in time
    assert not hasattr(synthesizer, "card_")


def test_a_declared_shape_says_nothing():
    X = np.random.default_rng(0).random((30, 256))
    for make in (P3GMSynthesizer, DPMERFSynthesizer):
        synthesizer = make(bounds=(0, 1), image_shape=(16, 16))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            synthesizer.plan(X)
        assert not [warning for warning in said if HINT in str(warning.message)]


def test_the_hint_is_said_once_and_depends_on_no_value():
    said = []
    for seed in (0, 1):
        X = np.random.default_rng(seed).random((30, 256)) ** (1 + 5 * seed)
        with warnings.catch_warnings(record=True) as here:
            warnings.simplefilter("always")
            P3GMSynthesizer(8.0, bounds=(0, 1), noise="fast").fit(X)
        said.append([str(warning.message) for warning in here if HINT in str(warning.message)])
    assert len(said[0]) == 1
    assert said[0] == said[1]


def test_a_frame_of_pixels_is_pointed_out_too():
    schema = Schema([*(Numeric(f"p{i}", (0, 255)) for i in range(256)), Categorical("digit", (0, 1))])
    frame = pd.DataFrame(np.zeros((20, 257)), columns=list(schema)).astype({"digit": int})
    with pytest.warns(UtilityWarning, match="give them as an array, with the classes as y"):
        MomentSynthesizer(schema=schema, target="digit").plan(frame)


@pytest.mark.parametrize(("shape", "advised"), [((3, 32, 16), "(32, 16, 3)"), ((1, 28, 28), "(28, 28)")])
def test_an_image_shape_with_channels_first_is_pointed_out(shape, advised):
    with pytest.warns(UtilityWarning, match="in (16|28) channels.*channels come first") as said:
        assert check_image_shape(shape, np.prod(shape)) == shape
    assert f"image_shape={advised}" in str(said[0].message)
    for usual in ((32, 32, 3), (28, 28, 1), (28, 28), (1, 3), (3, 3, 3), (1, 40)):
        assert check_image_shape(usual, np.prod(usual)) == usual


OF_IMAGES = (
    *(P3GMSynthesizer, MomentSynthesizer, DP2VAESynthesizer, DPMERFSynthesizer, PriVAESynthesizer, DPGMSynthesizer),
    *(DPCGANSynthesizer, DPSinkhornSynthesizer),
)


def warnings_of(call, about):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in said if about in str(warning.message)]


@pytest.mark.parametrize("make", OF_IMAGES)
def test_images_without_the_range_of_their_pixels_are_pointed_out_before_the_charge(make):
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(UtilityWarning, match="image_shape= needs bounds=: the range of the pixels"):
        make(accountant=accountant, image_shape=(16, 16)).fit(np.random.default_rng(0).random((30, 256)))
    assert not accountant.charges


@pytest.mark.parametrize("bounds", [(0, 1), (-1, 1)])
@pytest.mark.parametrize("make", [P3GMSynthesizer, DPMERFSynthesizer, DPCGANSynthesizer])
def test_integer_pixels_that_bounds_cut_to_black_and_white_are_pointed_out_before_the_charge(make, bounds):
    X = np.random.default_rng(0).integers(0, 256, (30, 64))
    accountant = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(UtilityWarning, match=f"integers.*bounds=.{bounds[0]}, 1. clips each pixel to 1 at most"):
        make(accountant=accountant, bounds=bounds, image_shape=(8, 8)).fit(X.astype(np.uint8))
    assert not accountant.charges


@pytest.mark.parametrize(
    ("rows", "public"),
    [
        (np.zeros((30, 64), dtype=bool), {"image_shape": (8, 8), "bounds": (0, 1)}),
        (np.zeros((30, 64)), {"image_shape": (8, 8), "bounds": (0, 1)}),
        (np.zeros((30, 64), dtype=np.uint8), {"image_shape": (8, 8), "bounds": (0, 255)}),
        (np.zeros((30, 64), dtype=np.uint8), {"bounds": (0, 1)}),
    ],
)
def test_truth_values_floats_and_rows_that_are_no_images_may_have_the_range_0_to_1(rows, public):
    assert not warnings_of(lambda: MomentSynthesizer(**public).plan(rows), "clips each pixel")


@pytest.mark.parametrize(
    ("make", "few_steps"),
    [
        (MomentSynthesizer, {}),
        (P3GMSynthesizer, {}),
        (DPMERFSynthesizer, {"steps": 5}),
        (DPCGANSynthesizer, {"training": DPSGD(5, sampling_rate=0.1)}),
    ],
)
def test_an_array_of_truth_values_is_pointed_out_before_the_charge(make, few_steps):
    X = np.random.default_rng(0).random((400, 3)) < 0.3
    accountant = PrivacyAccountant(5.0, 1e-5)
    with pytest.raises(UtilityWarning, match=r"truth values \(bool\).*give pandas.DataFrame\(X\)"):
        make(5.0, bounds=(0, 1), accountant=accountant).fit(X)
    assert not accountant.charges
    for other in (X.astype(int), X.tolist(), X.reshape(-1, 3).astype(float)):  # a list has no dtype
        assert not warnings_of(lambda rows=other: make(5.0, bounds=(0, 1)).plan(rows), "truth values")
    drawn = make(5.0, **few_steps).fit(pd.DataFrame(X)).sample(50)
    assert list(drawn.dtypes) == [np.dtype(bool)] * 3


def test_float_images_above_their_bounds_are_said_by_their_released_mean_alone():
    X = np.random.default_rng(0).random((500, 64)) * 255
    model = MomentSynthesizer(5.0, bounds=(0, 1), image_shape=(8, 8), l2_bound=8.0)
    assert not warnings_of(lambda: model.plan(X), "clipped")  # whether a value is clipped is private
    (said,) = warnings_of(lambda: model.fit(X), "released mean of all pixels")
    assert "if the pixels have a wider range, such as (0, 255), declare it" in said
    budget = PrivacyAccountant(5.0, 1e-5)
    with pytest.raises(ValueError, match="outside"):
        MomentSynthesizer(5.0, bounds=(0, 1), image_shape=(8, 8), on_invalid="raise", accountant=budget).fit(X)
    assert not budget.charges


@pytest.mark.parametrize("make", [MomentSynthesizer, DPMERFSynthesizer, DPSinkhornSynthesizer])
def test_channels_that_come_first_are_pointed_out_once(make):
    X = np.random.default_rng(0).random((30, 108))
    model = make(epsilon=20.0, bounds=(0, 1), image_shape=(3, 6, 6), n_components=2)
    said = warnings_of(lambda: (model.fit if make is MomentSynthesizer else model.plan)(X), "channels come first")
    assert len(said) == 1


@pytest.mark.parametrize("make", [P3GMSynthesizer, MomentSynthesizer])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_images_that_use_next_to_nothing_of_their_range_are_said_by_their_released_means(make):
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    X = np.clip(rng.normal(0.2 + 0.4 * y[:, None], 0.2, (2000, 64)), 0, 1)
    public = {"classes": [0, 1], "image_shape": (8, 8)}
    (said,) = warnings_of(lambda: make(5.0, bounds=(0, 255), **public).fit(X, y), "released means of pixels")
    assert "within 1 % of the lower end of bounds=(0, 255)" in said
    assert not warnings_of(lambda: make(5.0, bounds=(0, 1), **public).fit(X, y), "released means of pixels")


def test_the_values_of_a_list_do_not_decide_whether_its_pixels_are_pointed_out():
    rows = np.random.default_rng(0).integers(0, 2, (20, 256)).tolist()
    model = MomentSynthesizer(5.0, bounds=(0, 1), image_shape=(16, 16), l2_bound=10.0)
    for first in (1, 0.5):
        rows[0][0] = first
        assert not warnings_of(lambda: model.plan(rows), "clips each pixel")


@pytest.mark.parametrize("make", [P3GMSynthesizer, MomentSynthesizer])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_images_that_the_noise_hides_are_said_by_their_released_means_and_their_known_noise(make):
    X, y = load_digits(return_X_y=True)
    public = {"bounds": (0, 16), "l2_bound": 7.0, "classes": range(10), "image_shape": (8, 8)}
    few, all_ = (
        warnings_of(lambda n=n: make(3.0, **public).fit(X[:n], y[:n]), "hides the images") for n in (100, 1797)
    )
    (text,) = few
    assert re.match(r"the noise hides the images of \d+ of 10 classes: ", text)
    assert text.endswith("Take more rows or a larger epsilon, or smaller images")
    assert not all_
    (text,) = warnings_of(
        lambda: make(0.1, bounds=(0, 16), l2_bound=7.0, image_shape=(8, 8)).fit(X[:60]), "the images:"
    )
    assert text.startswith("the noise hides the images: ")
    public.pop("l2_bound")
    (text,) = warnings_of(lambda: make(3.0, **public).fit(X[:100], y[:100]), "hides the images")
    assert text.endswith("or smaller images; declare l2_bound=, if public")
    assert not warnings_of(lambda: make(np.inf, **public).fit(X[:100], y[:100]), "hides the images")


@pytest.mark.parametrize("make", [P3GMSynthesizer, MomentSynthesizer])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_images_on_a_bright_background_are_said_to_have_large_norms(make):
    X, y = load_digits(return_X_y=True)
    X = np.pad(X.reshape(-1, 8, 8), [(0, 0), (2, 2), (2, 2)]).reshape(len(X), -1)  # with a margin, as on paper
    public = {"bounds": (0, 16), "classes": range(10), "image_shape": (12, 12)}
    (text,) = warnings_of(lambda: make(3.0, **public).fit(16 - X, y), "bright images")
    assert re.match(r"the released mean of all pixels is at \d\d% of the range of bounds=: ", text)
    assert text.endswith("Fit 16 - X, and subtract the samples likewise")
    assert not warnings_of(lambda: make(3.0, **public).fit(X, y), "bright images")
