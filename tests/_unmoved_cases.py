"""Fits of every estimator on every kind of data, declared and learned: what must not move while modules do."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd
from _flat import make_flat
from sklearn.datasets import load_breast_cancer, load_digits

from skdpgen import (
    DPPCA,
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PriVAESynthesizer,
    PrivateSearchCV,
    SubsetSGD,
)
from skdpgen.nn import (
    DPNet,
    DPNetClassifier,
    ImageRefinementModule,
    P3GMModule,
    PartitionedVAEModule,
    PriVAEModule,
    TableRefinementModule,
)
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric, Schema

RELATIONS = {"add": "add_or_remove_one", "replace": "replace_one"}
N = 240


# ---- data: tables of scikit-learn, so that they are the same numbers everywhere --------------------------------------
@functools.cache
def table():
    X, y = (part[:N] for part in load_breast_cancer(return_X_y=True))
    return np.ascontiguousarray(X[:, [0, 1, 4]]), y


@functools.cache
def _images():
    X, y = load_digits(n_class=3, return_X_y=True)
    return X[:N], y[:N]


@functools.cache
def _frame():
    X, y = table()
    size = np.array(["small", "middle", "large"], dtype=object)[np.digitize(X[:, 0], [12.0, 17.0])]
    frame = pd.DataFrame(
        {
            "radius": X[:, 0],
            "texture": np.where(np.arange(N) % 40 == 3, np.nan, X[:, 1]),
            "count": np.rint(10 * X[:, 0]).astype(np.int64),
            "size": pd.Series(size, dtype=object),
            "smooth": X[:, 2] < 0.1,
            "day": np.datetime64("2001-03-04", "us") + np.rint(100 * X[:, 1]).astype("timedelta64[D]"),
        }
    )
    return frame, pd.Series(np.array(["malignant", "benign"], dtype=object)[y], name="diagnosis", dtype=object)


def _schema(with_target):
    columns = [
        Numeric("radius", (0, 40)),
        Numeric("texture", (0, 50), missing=True),
        Numeric("count", (0, 400), integer=True),
        Categorical("size", ("small", "middle", "large"), other="another"),
        Boolean("smooth"),
        Datetime("day", ("2000-01-01", "2020-01-01")),
    ]
    return Schema([*columns, Categorical("diagnosis", ("benign", "malignant"))] if with_target else columns)


_DIAGNOSES = ["benign", "malignant"]
BOUNDS = [(0, 40), (0, 50), (0, 0.3)]


@functools.cache
def form_of(form):
    """(arguments of fit, parameters that say how to read them, parameters that declare what is public)."""
    X, y = _images() if form.startswith("images") else table()
    frame, labels = _frame()
    pixels, numbers = {"image_shape": (8, 8)}, frame[["radius", "count"]]
    return {
        "array": ((X,), {}, {"bounds": BOUNDS, "l2_bound": 1.2}),
        "array_y": ((X, y), {}, {"bounds": BOUNDS, "l2_bound": 1.2, "classes": [0, 1]}),
        "array_numbers": ((X[:, :2], X[:, 2]), {}, {"bounds": BOUNDS[:2]}),
        "images": ((X,), pixels, {"bounds": (0, 16), "l2_bound": 6.0}),
        "images_y": ((X, y), pixels, {"bounds": (0, 16), "l2_bound": 6.0, "classes": range(3)}),
        "faces": (
            (np.pad(_images()[0].reshape(-1, 8, 8), ((0, 0), (10, 10), (10, 10))).reshape(-1, 784),),
            {"image_shape": (28, 28)},
            {},
        ),
        "numbers": ((numbers,), {}, {"bounds": [(0, 40), (0, 400)], "l2_bound": 1.2}),
        "frame": ((frame,), {}, {"schema": _schema(False)}),
        "frame_y": ((frame, labels), {}, {"schema": _schema(False), "classes": _DIAGNOSES}),
        "frame_target": ((frame.assign(diagnosis=labels),), {"target": "diagnosis"}, {"schema": _schema(True)}),
        "frame_targets": ((frame.assign(diagnosis=labels),), {"target": ["smooth", "size"]}, {"schema": _schema(True)}),
    }[form]


# ---- fits ------------------------------------------------------------------------------------------------------------
SHARED = {"epsilon": 4.0, "random_state": 0}
_SMALL = {"n_components": 2, "steps": 3, "sampling_rate": 0.2}
FAST = 1.0  # epsilon of fits with sampled steps: more takes longer to calibrate


def _net(module):
    return DPNet(module, module__n_hidden=5)


def _p3gm_net(**given):
    return make_flat(P3GMSynthesizer, decoder="net", warm_start_steps=2, net=_net(P3GMModule), **_SMALL, **given)


def _p3gm_refined(**given):
    return make_flat(P3GMSynthesizer, decoder="net", net=_net(TableRefinementModule), **_SMALL, **given)


def _p3gm_shifted(**given):
    return make_flat(P3GMSynthesizer, decoder="net", net=_net(ImageRefinementModule), **_SMALL, **given)


def _p3gm_mixture(**given):
    return make_flat(P3GMSynthesizer, prior=LatentMixture(2, covariance_type="diag", n_iter=2), n_components=2, **given)


def _privae(**given):
    defaults = {"divergence": None, "warm_start_steps": 0}
    return make_flat(PriVAESynthesizer, net=_net(PriVAEModule), **_SMALL, **{**defaults, **given})


def privae_mmd(**given):
    return _privae(divergence="mmd", n_groups=2, **given)


def _privae_sparse(**given):
    return _privae(divergence="kl_prior", prior="sparse", n_groups=2, **given)


def _privae_batch(**given):
    return _privae(divergence="mmd", aggregation="batch", **given)


def dpvae(**given):
    return make_flat(DPVAESynthesizer, net=_net(PriVAEModule), **{**_SMALL, "warm_start_steps": 0, **given})


def _dpvae_from_moments(**given):
    return dpvae(warm_start_steps=2, **given)


def _privae_from_moments(**given):
    return privae_mmd(warm_start_steps=2, **given)


_SUBSETS = {"n_subsets": 6, "pretrain_steps": 2, "steps": 3, "n_components": 2, "batch_size": 4}


def _dp2vae(**given):
    return make_flat(DP2VAESynthesizer, warm_start_steps=2, **_SUBSETS, **given)


def _dp2vae_one_of_k(**given):
    given.pop("l2_bound", None)  # of the start from moments alone
    return make_flat(
        DP2VAESynthesizer, warm_start_steps=0, sampler="one_of_k", encoder_update="on_query", **_SUBSETS, **given
    )


def _dpgm(**given):
    return make_flat(DPGMSynthesizer, n_clusters=2, cluster_steps=2, net=_net(PartitionedVAEModule), **_SMALL, **given)


def _merf(**given):
    sizes = {} if "image_shape" in given else {"hidden_layer_sizes": (6,)}
    return DPMERFSynthesizer(n_frequencies=20, steps=3, n_components=3, **sizes, **given)


def _sinkhorn(**given):
    return make_flat(
        DPSinkhornSynthesizer,
        generated_rows=6,
        sampling_rate=0.2,
        steps=3,
        hidden_layer_sizes=(6,),
        n_components=3,
        **given,
    )


def _gan(**given):
    sizes = {} if "image_shape" in given else {"generator_sizes": (6,), "discriminator_sizes": (5,)}
    return make_flat(DPCGANSynthesizer, n_critic=2, **sizes, **_SMALL, **given)


def _votes(**given):
    sizes = {"generator_sizes": (6,), "student_sizes": (5,), "n_components": 3}
    return PATEGANSynthesizer(n_teachers=7, steps=3, labelled_rows=10, **sizes, **given)


def _critics(**given):
    sizes = {"hidden_layer_sizes": (6,), "critic_sizes": (5,), "n_components": 3, "batch_size": 4}
    return GSWGANSynthesizer(n_critics=7, steps=3, generated_rows=6, warm_start_steps=2, **sizes, **given)


def _critics_sampled(**given):
    return _critics(critics_per_step=3, **given)


def _signs(**given):
    sizes = {"hidden_layer_sizes": (6,), "teacher_sizes": (5,), "n_components": 3, "batch_size": 4, "n_largest": 2}
    return DataLensSynthesizer(n_teachers=7, steps=3, generated_rows=6, warm_start_steps=2, **sizes, **given)


def _histograms(**given):
    sizes = {"hidden_layer_sizes": (6,), "teacher_sizes": (5,), "n_components": 3, "batch_size": 4, "n_bins": 3}
    shared = {"n_teachers": 7, "steps": 3, "generated_rows": 6, "n_projections": 2, "warm_start_steps": 2}
    return GPATESynthesizer(**shared, **sizes, **given)


def small_classifier(**given):
    return DPNetClassifier(hidden_layer_sizes=(5,), steps=3, sampling_rate=0.2, **given)


def _search(**given):
    own = {name: given.pop(name) for name in ("epsilon", "neighboring", "random_state")}
    return PrivateSearchCV(
        DPPCA(**given), {"n_components": [1, 2]}, runs="logarithmic", mean_runs=1.5, score_bounds=(-30, 10), **own
    )


def _search_tstr(**given):
    own = {name: given.pop(name) for name in ("epsilon", "neighboring", "random_state")}
    template = MomentSynthesizer(random_state=0, **given)
    return PrivateSearchCV(
        template, {"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]}, scoring="tstr_accuracy", mean_runs=2, **own
    )


_ARRAYS, _FRAMES = ("array", "array_y"), ("frame", "frame_y", "frame_target")
# Name: (how it is made, forms of data).
ESTIMATORS = {
    "p3gm": (P3GMSynthesizer, (*_ARRAYS, *_FRAMES, "array_numbers", "images_y")),
    "p3gm_net": (_p3gm_net, (*_ARRAYS, *_FRAMES)),
    "p3gm_refined": (_p3gm_refined, ("frame", "frame_target")),
    "p3gm_shifted": (_p3gm_shifted, ("images_y",)),
    "p3gm_mixture": (_p3gm_mixture, ("array", "frame_target")),
    "moment": (MomentSynthesizer, (*_ARRAYS, *_FRAMES, "frame_targets", "array_numbers", "images_y")),
    "privae": (_privae, (*_ARRAYS, *_FRAMES)),
    "privae_mmd": (privae_mmd, ("array_y", "frame_target")),
    "privae_sparse": (_privae_sparse, ("array",)),
    "privae_batch": (_privae_batch, ("array",)),
    "dpvae": (dpvae, (*_ARRAYS, *_FRAMES)),
    "dpvae_from_moments": (_dpvae_from_moments, ("array_y", *_FRAMES)),
    "privae_from_moments": (_privae_from_moments, ("frame_target",)),
    "dp2vae": (_dp2vae, (*_ARRAYS, *_FRAMES, "images_y")),
    "dp2vae_one_of_k": (_dp2vae_one_of_k, ("array",)),
    "dpgm": (_dpgm, (*_ARRAYS, *_FRAMES)),
    "merf": (_merf, (*_ARRAYS, *_FRAMES, "array_numbers", "images_y")),
    "sinkhorn": (_sinkhorn, ("array_y", "frame_target", "images_y")),
    "dpcgan": (_gan, ("array_y", "frame_target", "images_y")),
    "pategan": (_votes, ("array_y", "frame_target")),
    "gswgan": (_critics, ("array_y", "frame_target", "images_y")),
    "gswgan_sampled": (_critics_sampled, ("array_y",)),
    "datalens": (_signs, ("array_y", "frame_target", "images_y")),
    "gpate": (_histograms, ("array_y", "frame_target", "images_y")),
    "pca": (functools.partial(DPPCA, 2), ("array", "numbers")),
    "pca_two_round": (functools.partial(DPPCA, 2, centering="two_round"), ("array",)),
    "mixture": (functools.partial(DPGaussianMixture, 2, n_iter=2), ("array", "numbers")),
    "mixture_diag": (functools.partial(DPGaussianMixture, 2, n_iter=2, covariance_type="diag"), ("array",)),
    "mixture_y": (DPGaussianMixture, ("array_y",)),
    "classifier": (small_classifier, ("array_y",)),
    "search": (_search, ("array",)),
    "search_tstr": (_search_tstr, ("array_y",)),
}
CASES = [
    f"{name}-{form}-{declared}-{relation}"
    for name, (_, forms) in ESTIMATORS.items()
    for form, declared, relation in itertools.product(forms, ("public", "learned"), RELATIONS)
]


def make(case):
    """Return the estimator of a case, and the arguments of its fit."""
    name, form, declared, relation = case.split("-")
    arguments, reading, public = form_of(form)
    maker, _ = ESTIMATORS[name]
    shared = {**SHARED, "neighboring": RELATIONS[relation]}
    fresh = maker(**shared)
    known = getattr(fresh, "estimator", fresh).get_params(deep=False)
    if (known.get("steps") and name != "merf") or known.get("training") is not None:
        shared["epsilon"] = FAST
    chosen = {**reading, **(public if declared == "public" else {})}
    return maker(**shared, **{key: value for key, value in chosen.items() if key in known}), arguments


# A replaced row changes the plan, and of a fit the noise alone: fewer fits tell.
_REPLACED = ("array-learned-replace", "frame_target-learned-replace", "array_y-public-replace")
FITTED = [case for case in CASES if case.endswith(("-add", *_REPLACED))]

# Plans alone: published settings and defaults, whose fits take too long here. Name: (how it is made, form, what more).
PRESETS = {
    "p3gm_paper_adult": (P3GMSynthesizer, "frame_target", {"preset": "paper/adult"}),
    "p3gm_net_image_defaults": (P3GMSynthesizer, "faces", {"decoder": "net"}),
    "p3gm_net_defaults": (P3GMSynthesizer, "frame", {"decoder": "net"}),
    "privae_defaults": (PriVAESynthesizer, "array", {}),
    "dp2vae_paper": (DP2VAESynthesizer, "faces", {"preset": "paper/mnist", "training": SubsetSGD(max_memory=100.0)}),
    "dp2vae_defaults": (DP2VAESynthesizer, "array", {}),
    "dp2vae_image_defaults": (DP2VAESynthesizer, "faces", {}),
    "dpcgan_table_defaults": (DPCGANSynthesizer, "frame_target", {}),
    "sinkhorn_defaults": (DPSinkhornSynthesizer, "array", {}),
    "classifier_defaults": (DPNetClassifier, "array_y", {}),
}


def make_preset(name):
    """Return the estimator of a preset, and the arguments of its fit."""
    maker, form, given = PRESETS[name]
    arguments, reading, _ = form_of(form)
    return maker(random_state=0, **reading, **given), arguments
