"""The one list of fits that `check_noninterference` is run on: a new estimator gets the harness by a line here.

Data sets come in pairs that share their public facts and nothing else, so that each branch is crossed: signs of
columns, few and many rows, a constant column, values far beyond bounds, missing values, classes that only one of them
has, images of other grey levels.
"""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
from _flat import make_flat
from _short_fits import short_postprocessing

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
from skdpgen.tabular import Boolean, Categorical, Datetime, Identifier, Numeric, Schema
from skdpgen.testing import check_noninterference

__all__ = ["CASES", "KINDS", "PRODUCT", "Case", "noninterference"]

REPLACE = "replace_one"
_MANY, _FEW = 84, 30
# Of tables and images: bins, and cells of classes, follow from released counts where there are so many.
_MORE = 450


# ---- data: (many rows, few rows, rows that join) -------------------------------------------------------------------
def _arrays(n_many, n_few):
    rng = np.random.default_rng(3)
    many = np.column_stack([rng.gamma(2.0, 3.0, n_many), rng.random(n_many), 40 + rng.random(n_many)])
    few = np.column_stack([rng.normal(-300, 90, n_few), np.full(n_few, 0.25), rng.standard_cauchy(n_few) * 1e4])
    joining = np.array([[-1e9, 1e-6, 0.3], [2.0, -0.5, 41.0]])
    return many, few, joining


def _classes(n_many, n_few):
    rng = np.random.default_rng(4)
    # the commonest class is another one in each, among few rows too
    many = np.resize(["bread", "salt", "wine", "bread"], n_many).astype(object)
    few = np.where(rng.random(n_few) < 0.75, "wine", "a word that is nowhere else").astype(object)
    return many, few, np.array(["a third word", "salt"], dtype=object)


def _numbers(n_many, n_few):
    rng = np.random.default_rng(5)
    return rng.random(n_many), -1e3 * rng.random(n_few), np.array([1e7, 0.5])


def _flags(n_many, n_few):
    rng = np.random.default_rng(6)
    return rng.random(n_many) < 0.4, np.ones(n_few, dtype=bool), np.array([False, True])


def _images(n_many, n_few):
    """4 x 4 pixels, up to 16: of one data set nearly black and white, of the other grey, and darker."""
    rng = np.random.default_rng(8)
    many = 16.0 * (rng.random((n_many, 16)) < 0.4) + rng.random((n_many, 16))
    few = 8.0 * rng.random((n_few, 16))
    return many, few, np.vstack([np.full(16, 7.6), 16.0 * rng.random(16)])


def _frame(n, seed, words, shift, missing):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "height": rng.normal(1.7, 0.1, n) + shift,
            "income": (rng.gamma(2.0, 900.0, n) * (-50 if shift else 1)),
            "age": rng.integers(1, 90, n) * (1 if shift else 2),
            "job": rng.permutation(np.resize(words, n)).astype(object),
            "late": rng.random(n) < (0.02 if shift else 0.5),
            "day": pd.Timestamp("2001-03-04") + pd.to_timedelta(rng.integers(0, 900 if shift else 9000, n), unit="D"),
        }
    )
    if shift:
        frame["day"] += pd.to_timedelta(rng.integers(0, 86_400, n), unit="s")
    else:
        frame["income"] = frame["income"].round()
    frame["day"] = frame["day"].astype("datetime64[us]")
    if missing:
        frame.loc[:4, "income"] = np.nan
        frame.loc[2:6, "job"] = None
        frame.loc[1:2, "day"] = pd.NaT
    return frame


def _frames(n_many, n_few):
    many = _frame(n_many, 11, ["baker", "nurse", "pilot"], 0.0, False)
    few = _frame(n_few, 12, ["nurse", "a word that is nowhere else", "other"], -40.0, True)
    joining = _frame(2, 13, ["alone", "baker"], 1e6, False)
    return many, few, joining


def _declared():
    return Schema(
        [
            Numeric("height", (0, 3)),
            Numeric("income", (0, 20_000), missing=True),
            Numeric("age", (0, 120), integer=True),
            Categorical("job", ("baker", "nurse", "pilot"), other="another", missing=True),
            Boolean("late"),
            Datetime("day", ("1990-01-01", "2030-01-01"), missing=True),
        ]
    )


def _many_levels():
    """A column of so many categories that it is modelled by groups of them."""
    words = ("baker", "nurse", "pilot", *(f"job {i}" for i in range(130)))
    return _declared().replace(Categorical("job", words, other="another", missing=True))


def _groups_of_levels():
    """A column of learned categories, which are grouped by their first letters, and within these by three."""
    return _declared().replace(Categorical("job", missing=True, hierarchy=(1, 3)))


def _levels():
    return Schema([Categorical("job", ("baker", "nurse", "pilot"), other="another", missing=True), Boolean("late")])


def _forms(frame):
    """Decimals and dates as objects, time spans, and keys."""
    cents = np.rint(frame["income"].fillna(0.0) * 4) / 4
    return pd.DataFrame(
        {
            "key": [f"{value:.17f}" for value in frame["height"]],
            "amount": pd.Series([Decimal(repr(value)) for value in cents], dtype=object),
            "date": frame["day"].dt.date.astype(object).where(frame["day"].notna(), None),
            "span": pd.to_timedelta(frame["age"], unit="h"),
            "age": frame["age"],
        }
    )


def _keyed():
    return Schema([Identifier("key"), Numeric("age", integer=True, step=2, spikes=(40,))])


def _series(values):
    return tuple(pd.Series(part, name="label") for part in values)


_X_ONLY = ["height", "income"]
_WORDS = ["job", "late"]
# Kinds of data: a function of the lengths of two sets that gives the arguments of `fit` of them, and of joining rows.
KINDS = {
    "array": lambda n: list(zip(_arrays(*n))),
    "array, classes": lambda n: list(zip(_arrays(*n), _classes(*n))),
    "array, text of any length": lambda n: list(zip(_arrays(*n), [part.astype(str) for part in _classes(*n)])),
    "array, numbers": lambda n: list(zip(_arrays(*n), _numbers(*n))),
    "array, flags": lambda n: list(zip(_arrays(*n), _flags(*n))),
    "wide array, classes": lambda n: list(zip([np.tile(part, (1, 34)) for part in _arrays(*n)], _classes(*n))),
    "images": lambda n: list(zip(_images(*n))),
    "images, classes": lambda n: list(zip(_images(*n), _classes(*n))),
    "frame": lambda n: list(zip(_frames(*n))),
    "frame of numbers": lambda n: [(part[_X_ONLY].fillna(0.0),) for part in _frames(*n)],
    "frame of numbers, classes": lambda n: list(
        zip([part[_X_ONLY].fillna(0.0) for part in _frames(*n)], _series(_classes(*n)))
    ),
    "frame of words": lambda n: [(part[_WORDS],) for part in _frames(*n)],
    "frame of forms": lambda n: [(_forms(part),) for part in _frames(*n)],
    "frame, numbers": lambda n: list(zip(_frames(*n), _series(_numbers(*n)))),
    "frame, classes": lambda n: list(zip(_frames(*n), _series(_classes(*n)))),
    "frame, category": lambda n: list(
        zip(
            [part.astype({"job": "category"}) for part in _frames(*n)],
            [part.astype("category") for part in _series(_classes(*n))],
        )
    ),
}


# ---- sources: what `fit` is given in the place of a frame ----------------------------------------------------------
def chunks(frame):
    """Two chunks, numbers of which have other dtypes than those of the frame."""
    cut = min(7, len(frame))
    first, second = frame.iloc[:cut].copy(), frame.iloc[cut:].copy()
    first["age"] = first["age"].astype("float64")
    first["height"] = first["height"].astype("float32")
    second["age"] = second["age"].astype("int32")
    return [first, second]


def parquet(frame):
    """The paths of two Parquet files."""
    folder = Path(tempfile.mkdtemp(dir=_FOLDER.name))
    cut, paths = min(9, len(frame)), [folder / "1.parquet", folder / "2.parquet"]
    for part, path in zip((frame.iloc[:cut], frame.iloc[cut:]), paths):
        part.to_parquet(path)
    return paths


_FOLDER = tempfile.TemporaryDirectory()


# ---- fits ----------------------------------------------------------------------------------------------------------
class Case:
    """One fit of the list.

    Parameters
    ----------
    estimator : estimator
    kind : str
        Of `KINDS`.
    n_few : int, default=30
        Rows of the second data set; under replace_one both have 84.
    source : callable, default=None
    back : bool, default=False
        Whether the second data set is recorded, and replayed into the first.
    """

    def __init__(self, estimator, kind="array", *, n_few=_FEW, source=None, back=False):
        self.estimator, self.kind, self.n_few, self.source, self.back = estimator, kind, n_few, source, back

    def check(self):
        """Run the harness."""
        n_rows = (_MANY if self.kind.startswith("array") else _MORE), self.n_few
        if self.estimator.get_params()["neighboring"] == REPLACE:
            n_rows = _MANY, _MANY
        many, few, rows = KINDS[self.kind](n_rows)
        if self.back:
            many, few = few, many
        with short_postprocessing():
            check_noninterference(self.estimator, many, few, rows=self._joining(rows), source=self.source)

    def _joining(self, rows):
        """All joining rows, the hardest alone of nets, whose fits take longest."""
        return tuple(part[:1] for part in rows) if "sampling_rate" in self.estimator.get_params() else rows


_LOW = {"epsilon": 60.0, "random_state": 0}  # so little noise that branches follow the rows
_PUBLIC = {"bounds": (-5, 60), "l2_bound": 1.0}
_NET = {"sampling_rate": 0.5, "steps": 2}
_DEEP = {"decoder": "net", "warm_start_steps": 1, **_NET}
_REFINES = {"decoder": "net", "net": DPNet(TableRefinementModule, module__n_hidden=4), **_NET}
_SHIFTS = {"decoder": "net", "net": DPNet(ImageRefinementModule, module__n_hidden=4), **_NET, "image_shape": (4, 4)}
_CLASSES = ["bread", "salt", "wine", "a word that is nowhere else", "a third word"]
_PIXELS = {"image_shape": (4, 4)}
_MOMENTS = {"warm_start_steps": 1}


def _p3gm(**parameters):
    if parameters.get("decoder") == "net":
        parameters.setdefault("net", DPNet(P3GMModule, module__n_hidden=4))
    return make_flat(P3GMSynthesizer, **{**_LOW, **parameters})


def _moment(**parameters):
    return MomentSynthesizer(**{**_LOW, **parameters})


def _mixture(n_components=1, **parameters):
    return DPGaussianMixture(n_components, **{**_LOW, "n_iter": 2, **parameters})


def _privae(divergence=None, **parameters):
    net = None if "image_shape" in parameters else DPNet(PriVAEModule, module__n_hidden=4)
    groups = {} if divergence is None or parameters.get("aggregation") else {"n_groups": 2}
    shared = {**_LOW, "n_components": 2, **_NET, "net": net, "divergence": divergence, "warm_start_steps": 0, **groups}
    return make_flat(PriVAESynthesizer, **{**shared, **parameters})


def _dpvae(**parameters):
    net = DPNet(PriVAEModule, module__n_hidden=4)
    shared = {**_LOW, "n_components": 2, **_NET, "net": net, "warm_start_steps": 0}
    return make_flat(DPVAESynthesizer, **{**shared, **parameters})


_FROM_FEATURES = {"warm_start_steps": 2, "budget_split": {"moments": 1, "features": 1, "decoder": 1}}


def _dp2vae(**parameters):
    shared = {"n_subsets": 5, "pretrain_steps": 1, "steps": 2, "n_components": 2, "batch_size": 4}
    shared["warm_start_steps"] = 1
    return make_flat(DP2VAESynthesizer, **{**_LOW, **shared, **parameters})


def _dpgm(**parameters):
    shared = {"n_clusters": 2, "cluster_steps": 2, "n_components": 2, **_NET}
    return make_flat(
        DPGMSynthesizer, **{**_LOW, **shared, "net": DPNet(PartitionedVAEModule, module__n_hidden=4), **parameters}
    )


def _merf(**parameters):
    sizes = {} if "image_shape" in parameters else {"hidden_layer_sizes": (4,)}
    return DPMERFSynthesizer(**{**_LOW, "steps": 1, "n_frequencies": 8, **sizes, **parameters})


def _transport(**parameters):
    shared = {"n_components": 2, "hidden_layer_sizes": (4,), "generated_rows": 6, **_NET}
    return make_flat(DPSinkhornSynthesizer, **{**_LOW, **shared, **parameters})


def _gan(**parameters):
    sizes = {} if "image_shape" in parameters else {"generator_sizes": (4,), "discriminator_sizes": (4,)}
    return make_flat(DPCGANSynthesizer, **{**_LOW, "n_components": 2, "n_critic": 1, **_NET, **sizes, **parameters})


def _votes(**parameters):
    sizes = {"generator_sizes": (4,), "student_sizes": (4,), "n_components": 2, "labelled_rows": 6}
    return PATEGANSynthesizer(**{**_LOW, "n_teachers": 3, "steps": 2, **sizes, **parameters})


def _critics(**parameters):
    sizes = {"hidden_layer_sizes": (4,), "critic_sizes": (4,), "n_components": 2, "generated_rows": 6, "batch_size": 3}
    return GSWGANSynthesizer(**{**_LOW, "n_critics": 3, "steps": 2, "warm_start_steps": 1, **sizes, **parameters})


def _teachers(**parameters):
    sizes = {"hidden_layer_sizes": (4,), "teacher_sizes": (4,), "n_components": 2, "generated_rows": 6, "batch_size": 3}
    shared = {"n_teachers": 3, "steps": 2, "warm_start_steps": 1, "n_largest": 2}
    return DataLensSynthesizer(**{**_LOW, **shared, **sizes, **parameters})


def _histograms(**parameters):
    sizes = {"hidden_layer_sizes": (4,), "teacher_sizes": (4,), "n_components": 2, "generated_rows": 6, "batch_size": 3}
    shared = {"n_teachers": 3, "steps": 2, "warm_start_steps": 1, "n_projections": 2, "n_bins": 3}
    return GPATESynthesizer(**{**_LOW, **shared, **sizes, **parameters})


def _classifier(**parameters):
    return DPNetClassifier(**{**_LOW, "hidden_layer_sizes": (4,), **_NET, **parameters})


def _search(**parameters):
    return PrivateSearchCV(
        DPPCA(2, bounds=(-5, 60)), {"budget_split": [{"bounds": 0.05}, {"bounds": 0.1}]}, runs="logarithmic",
        mean_runs=1.5, score_bounds=(-30, 10), random_state=0, **parameters,
    )  # fmt: skip


_SEVERAL = {"target": ["job", "late"]}
# One constraint of each kind, that some rows keep and others do not.
_RULES = ["height <= income", "combinations(job, late)", "if height < 1.6: day is None", "age + 5 >= height"]
_DECLARED_RULES = [
    "age == 60 - 2 * height", "height <= income", "income <= 5000 + age", "if late: day == '2001-01-01'",
    f"(job, late) in {[(job, late) for job in ('baker', 'nurse', 'pilot', 'another') for late in (True, False)]}",
]  # fmt: skip
CASES = {
    "pca": Case(DPPCA(2, **_LOW)),
    "pca, one row": Case(DPPCA(2, **_LOW), n_few=1),
    "pca, much noise": Case(DPPCA(2, epsilon=0.1)),
    "pca in two rounds": Case(DPPCA(2, centering="two_round", **_LOW, **_PUBLIC)),
    "pca, back": Case(DPPCA(0.9, **_LOW), back=True),
    "pca, replace_one": Case(DPPCA(2, neighboring=REPLACE, **_LOW)),
    "mixture": Case(_mixture(2)),
    "mixture, diagonal, replace_one": Case(_mixture(3, covariance_type="diag", neighboring=REPLACE, **_PUBLIC)),
    "mixture by class": Case(_mixture(), "array, text of any length"),
    "mixture, frame by class": Case(_mixture(), "frame of numbers, classes"),
    "mixture by declared class, replace_one": Case(
        _mixture(classes=_CLASSES, neighboring=REPLACE, **_PUBLIC), "array, classes"
    ),
    "arrays": Case(_p3gm(), "array, classes"),
    "arrays, one row": Case(_p3gm(), "array, classes", n_few=1),
    "arrays, much noise": Case(_p3gm(epsilon=0.2), "array, classes"),
    "arrays, back": Case(_p3gm(prior="gaussian"), "array", back=True),
    "arrays, wide": Case(_p3gm(epsilon=0.2, classes=_CLASSES), "wide array, classes"),
    "arrays, flags": Case(_moment(), "array, flags"),
    "arrays, numbers": Case(_p3gm(), "array, numbers"),
    "arrays, declared, replace_one": Case(_p3gm(classes=_CLASSES, neighboring=REPLACE, **_PUBLIC), "array, classes"),
    "arrays, mixture": Case(_p3gm(prior=LatentMixture(n_iter=2)), "array, classes"),
    "arrays, net": Case(_p3gm(**_DEEP), "array"),
    "arrays, net, back": Case(_p3gm(**_DEEP), "array", back=True),
    "images": Case(_p3gm(epsilon=400.0, **_PIXELS, bounds=(0, 16)), "images, classes"),
    "images, learned, replace_one": Case(_p3gm(**_PIXELS, neighboring=REPLACE), "images, classes"),
    "images, net that shifts": Case(_p3gm(epsilon=400.0, **_SHIFTS, bounds=(0, 16)), "images, classes"),
    "images, net that shifts, learned, back": Case(_p3gm(**_SHIFTS), "images, classes", back=True),
    "images of no class, net that shifts": Case(_p3gm(**_SHIFTS, neighboring=REPLACE), "images"),
    "images, features": Case(_p3gm(**_PIXELS, decoder="features", bounds=(0, 16)), "images, classes"),
    "moments, replace_one": Case(_moment(neighboring=REPLACE), "array"),
    "frame": Case(_p3gm(target="job"), "frame"),
    "frame, back": Case(_p3gm(target="job"), "frame", back=True),
    "frame, much noise": Case(_moment(epsilon=1.0), "frame"),
    "frame, declared": Case(_p3gm(target="job", schema=_declared()), "frame"),
    "frame, target": Case(_moment(target="job", budget_split={"target": 0.2}), "frame"),
    "frame, target, in chunks, replace_one": Case(
        _moment(target="late", neighboring=REPLACE, budget_split={"target": 0.2}), "frame", source=chunks
    ),
    "frame, target, constrained": Case(
        _p3gm(
            target="job",
            constraints=["height <= income", "if job == 'nurse': day is None"],
            budget_split={"target": 0.2},
        ),
        "frame",
    ),
    "frame, grouped levels": Case(_moment(target="late", schema=_many_levels()), "frame"),
    "frame, grouped levels, replace_one": Case(
        _moment(schema=_many_levels(), neighboring=REPLACE, constraints=["if late: job == 'nurse'"]), "frame"
    ),
    "frame, declared groups": Case(_moment(target="late", schema=_groups_of_levels()), "frame"),
    "frame, declared groups, replace_one": Case(_moment(schema=_groups_of_levels(), neighboring=REPLACE), "frame"),
    "frame, replace_one": Case(_p3gm(target="late", neighboring=REPLACE), "frame"),
    "frame of words": Case(_p3gm(schema=_levels(), target="job"), "frame of words"),
    "frame, several targets": Case(_moment(**_SEVERAL), "frame"),
    "frame, numbers": Case(_moment(), "frame, numbers"),
    "frame, category": Case(_moment(), "frame, category"),
    "frame, mixture": Case(_p3gm(prior=LatentMixture(n_iter=2)), "frame, classes"),
    "frame, net": Case(_p3gm(target="job", **_DEEP), "frame"),
    "frame, net that refines": Case(_p3gm(target="job", **_REFINES), "frame"),
    "frame, net that refines, back": Case(_p3gm(target="job", **_REFINES), "frame", back=True),
    "frame of forms and keys": Case(_moment(schema=_keyed()), "frame of forms"),
    "frame in chunks": Case(_moment(target="job"), "frame", source=chunks),
    "frame in Parquet": Case(_p3gm(target="job"), "frame", source=parquet),
    "frame, constrained": Case(_moment(constraints=_RULES), "frame"),
    "frame, product and weekdays": Case(
        _moment(constraints=["income == age * height", "weekday(day) != 'Sunday'", "hour(day) < 23"]), "frame"
    ),
    "frame, constrained, back": Case(_p3gm(constraints=_RULES), "frame", back=True),
    "frame, constrained, declared, replace_one": Case(
        _p3gm(constraints=_DECLARED_RULES, schema=_declared(), neighboring=REPLACE), "frame"
    ),
    "frame, constrained, in chunks": Case(
        _moment(constraints=["height <= income", "determines(job, age)"]), "frame", source=chunks
    ),
    "termwise net": Case(_privae("mmd"), "array, classes"),
    "termwise net, replace_one": Case(_privae("kl_prior", prior="sparse", neighboring=REPLACE), "array"),
    "whole-batch net": Case(_privae("mmd", aggregation="micro"), "array"),
    "DP-VAE": Case(_dpvae(), "array, classes"),
    "DP-VAE, frame": Case(_dpvae(target="late"), "frame"),
    "DP-VAE from moments": Case(_dpvae(**_MOMENTS), "array, classes"),
    "DP-VAE from moments, frame": Case(_dpvae(target="late", **_MOMENTS), "frame"),
    "DP-VAE from moments of images": Case(_dpvae(**_MOMENTS, **_PIXELS), "images, classes", back=True),
    "termwise net from moments, replace_one": Case(_privae("mmd", neighboring=REPLACE, **_MOMENTS), "array"),
    "subsets": Case(_dp2vae(), "array, classes"),
    "subsets of images": Case(_dp2vae(**_PIXELS), "images, classes"),
    "subsets of images from moments": Case(
        _dp2vae(**_PIXELS, epsilon=400.0, bounds=(0, 16), **_FROM_FEATURES), "images, classes"
    ),
    "subsets, one a step, replace_one": Case(
        _dp2vae(warm_start_steps=0, sampler="one_of_k", encoder_update="on_query", neighboring=REPLACE), "array"
    ),
    "subsets, frame": Case(_dp2vae(warm_start_steps=0, encoder_update="round_robin", target="job"), "frame"),
    "clustered nets": Case(_dpgm(), "array, classes"),
    "clustered nets, replace_one": Case(_dpgm(neighboring=REPLACE), "array"),
    "embedding": Case(_merf(), "array, classes"),
    "embedding, replace_one": Case(_merf(neighboring=REPLACE), "array"),
    "transport": Case(_transport(), "array, classes"),
    "transport, replace_one": Case(_transport(neighboring=REPLACE), "array"),
    "transport, back": Case(_transport(), "array, classes", back=True),
    "transport, images": Case(
        _transport(image_shape=(4, 4), n_frequencies=2, bounds=(-5, 60), l1_weight=1.0), "images, classes"
    ),
    "transport, frame": Case(_transport(target="job"), "frame"),
    "embedding of images": Case(_merf(**_PIXELS, bounds=(-5, 60)), "images, classes"),
    "embedding, frame in chunks": Case(_merf(target="job"), "frame", source=chunks),
    "adversary": Case(_gan(), "array, classes"),
    "adversary, back, replace_one": Case(_gan(neighboring=REPLACE), "array", back=True),
    "adversary of images": Case(_gan(**_PIXELS), "images, classes"),
    "adversary, frame": Case(_gan(target="late"), "frame"),
    "votes": Case(_votes(), "array, classes"),
    "votes, back, replace_one": Case(_votes(neighboring=REPLACE), "array", back=True),
    "votes, frame": Case(_votes(target="job"), "frame"),
    "critics": Case(_critics(), "array, classes"),
    "critics, sampled": Case(_critics(critics_per_step=2), "array, classes"),
    "critics, back, replace_one": Case(_critics(neighboring=REPLACE), "array", back=True),
    "critics of images": Case(_critics(image_shape=(4, 4), n_frequencies=2, bounds=(-5, 60)), "images, classes"),
    "critics, frame": Case(_critics(target="job"), "frame"),
    "signs": Case(_teachers(), "array, classes"),
    "signs, back, replace_one": Case(_teachers(neighboring=REPLACE, threshold=0.3), "array", back=True),
    "signs of images": Case(_teachers(image_shape=(4, 4), n_frequencies=2, bounds=(-5, 60)), "images, classes"),
    "signs, frame": Case(_teachers(target="job"), "frame"),
    "histograms": Case(_histograms(), "array, classes"),
    "histograms, back, replace_one": Case(_histograms(neighboring=REPLACE, vote="largest"), "array", back=True),
    "histograms of images": Case(_histograms(image_shape=(4, 4), n_frequencies=2, bounds=(-5, 60)), "images, classes"),
    "histograms, frame": Case(_histograms(target="job"), "frame"),
    "classifier": Case(_classifier(), "array, classes"),
    "classifier, declared, replace_one": Case(
        _classifier(classes=_CLASSES, bounds=(-5, 60), neighboring=REPLACE), "array, classes"
    ),
    "search": Case(_search()),
}


def _product():
    """Every estimator on every kind of data that it takes, learned and declared, under both relations."""
    arrays = [kind for kind in KINDS if kind.startswith("array")]
    frames = [kind for kind in KINDS if kind.startswith("frame") and "of" not in kind.split()]
    makers = {
        "released": (_p3gm, {}), "gaussian": (_p3gm, {"prior": "gaussian"}),
        "mixture": (_p3gm, {"prior": LatentMixture(n_iter=2)}), "net": (_p3gm, _DEEP),
        "net, mixture": (_p3gm, {"prior": LatentMixture(n_iter=2), **_DEEP}),
        "net, no variance": (_p3gm, {**_DEEP, "net": DPNet(P3GMModule, module__latent_variance="zero")}),
        "net that refines": (_p3gm, _REFINES),
        "moments": (_moment, {}), "DP-VAE": (_dpvae, {}), "mmd": (_privae, {"divergence": "mmd"}),
        "kl_prior": (_privae, {"divergence": "kl_prior"}),
        "micro": (_privae, {"divergence": "mmd", "aggregation": "micro"}),
        "batch": (_privae, {"divergence": "mmd", "aggregation": "batch"}),
        "subsets": (_dp2vae, {}), "subsets, random": (_dp2vae, {"warm_start_steps": 0}),
        "subsets, one of k": (_dp2vae, {"sampler": "one_of_k"}), "clusters": (_dpgm, {}), "embedding": (_merf, {}),
        "transport": (_transport, {}),
        "adversary": (_gan, {}),
        "votes": (_votes, {}),
        "critics": (_critics, {}),
        "signs": (_teachers, {}),
        "histograms": (_histograms, {}),
    }  # fmt: skip
    for relation in ("add_or_remove_one", REPLACE):
        for name, (make, settings) in makers.items():
            for kind in frames if settings is _REFINES else (*arrays, *frames, "images", "images, classes"):
                given = {**settings, "neighboring": relation}
                if kind.startswith("images"):
                    if name in (
                        "DP-VAE", "mmd", "kl_prior", "micro", "batch", "clusters", "embedding", "transport", "votes",
                        "critics", "signs", "histograms",
                    ):  # fmt: skip
                        continue  # of images these have nets of their own, or none, and no other reads
                    given.update(_PIXELS)
                yield f"{name} of {kind}, {relation}", Case(make(**given), kind)
                declared = {} if kind.startswith("frame") else {"bounds": (-5, 60)}
                if kind == "frame":
                    declared = {"schema": _declared(), "target": "job"}
                if "classes" in kind:
                    declared["classes"] = _CLASSES
                if declared and name != "net, no variance":
                    yield f"{name} of {kind}, declared, {relation}", Case(make(**{**given, **declared}), kind)
                yield f"{name} of {kind}, back, {relation}", Case(make(**given), kind, back=True)


PRODUCT = dict(_product())


def noninterference(name):
    """All that a fit leaves behind follows from its releases, and each release is as bounded as it claims."""
    (CASES.get(name) or PRODUCT[name]).check()
