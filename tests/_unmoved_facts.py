"""What a plan, a fit, books and files say, as JSON can hold it, and the digests of their bits."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import math
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import threadpoolctl
import torch
from _flat import make_flat
from _unmoved_cases import (
    BOUNDS,
    FAST,
    PRESETS,
    RELATIONS,
    SHARED,
    dpvae,
    form_of,
    make,
    make_preset,
    privae_mmd,
    small_classifier,
    table,
)

from skdpgen import DPPCA, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.accounting import (
    Charge,
    describe_event,
    event_to_json,
    gaussian_event,
    poisson_gaussian_event,
    subset_gaussian_event,
)
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import ClassifierModule, DPNet
from skdpgen.tabular import Schema
from skdpgen.testing import seeded_noise


# ---- plans -----------------------------------------------------------------------------------------------------------
def plan_facts(case):
    """Everything that a plan says, as JSON can hold it."""
    estimator, arguments = make_preset(case) if case in PRESETS else make(case)
    with one_thread(), quiet():
        return _plan(estimator.plan(*arguments))


def _plan(plan):
    phases = [
        [phase.label, phase.share, phase.steps, phase.sampling_rate, phase.mechanism, phase.signal]
        for phase in plan.phases
    ]
    return {
        "label": plan.label,
        "event": _event(plan.event),
        "noise_multipliers": dict(plan.noise_multipliers),
        "phases": phases,
        **{name: getattr(plan, name) for name in ("epsilon", "delta", "extra_delta", "neighboring")},
    }


def _event(event):
    """The rows of an event, or all its JSON where a row holds events."""
    rows = describe_event(event)
    return event_to_json(event) if any(row["mechanism"] == "repeat_and_select" for row in rows) else rows


# ---- fits ------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def one_thread():
    """Hold numpy and torch to one thread: sums of several are added in an order of their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _libraries().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def _libraries():
    """The libraries with threads: all are loaded by now, and to look for them takes as long as a small fit."""
    return threadpoolctl.ThreadpoolController()


@contextlib.contextmanager
def quiet():
    """Say nothing of noise that hides a tiny table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit_facts(case):
    """(What a fit was charged and its card, what must be the same on every machine of its sample, its bits)."""
    estimator, arguments = make(case)
    with one_thread(), quiet(), seeded_noise(0, quiet=True), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        estimator.fit(*arguments)
        return _fitted(estimator, arguments)


def _fitted(estimator, arguments):
    shapes, bits = {}, {}
    for name, made in _uses(estimator, arguments):
        shapes[name], bits[name] = shape_of(made), digest_of(made)
    return {"card": card_figures(estimator), "shapes": shapes}, bits


def _uses(estimator, arguments):
    """What a fitted estimator gives by its public methods, and the released facts that are attributes."""
    if hasattr(estimator, "sample"):
        yield "sample", estimator.sample(37, random_state=0)
        if hasattr(estimator, "classes_") and not isinstance(estimator.classes_, list):
            yield "sample, ratio", estimator.sample(11, class_ratio=np.ones(len(estimator.classes_)), random_state=1)
    X = arguments[0][:20] if isinstance(arguments[0], np.ndarray) else arguments[0].iloc[:20]
    y = tuple(np.asarray(part)[:20] for part in arguments[1:])
    if hasattr(estimator, "transform"):
        latent = estimator.transform(X)
        yield "transform", latent
        yield "inverse_transform", estimator.inverse_transform(latent)
    for name in ("predict", "predict_proba"):
        if hasattr(estimator, name):
            yield name, getattr(estimator, name)(X)
    if hasattr(estimator, "score"):
        yield "score", np.float64(estimator.score(X, *y))
    for name in (
        "row_count_",
        "class_ratio_",
        "classes_",
        "bounds_",
        "schema_",
        "components_",
        "means_",
        "best_score_",
    ):
        if hasattr(estimator, name):
            value = getattr(estimator, name)
            yield name, value.to_json() if isinstance(value, Schema) else value


def card_figures(estimator):
    """Return the figures of a card: no versions, no digest, and of the parameters those that are not defaults."""
    card = json.loads(estimator.card_.to_json())
    usual = {name: parameter.default for name, parameter in signature_of(type(estimator)).items()}
    parameters = card["model"]["parameters"]
    given = {name: value for name, value in parameters.items() if name not in usual or value != usual[name]}
    kept = ("private", "neighboring", "unit", "fit")
    return {
        **{name: card[name] for name in kept},
        "assumptions and samplers": [len(card["public_assumptions"]), len(card["sampler"])],  # not their wording
        "ledger": {name: value for name, value in card["ledger"].items() if name not in ("charges", "rule")},
        "statuses": [[charge["label"], charge["status"], charge["batch"]] for charge in card["ledger"]["charges"]],
        "model": card["model"]["name"],
        "parameters": given,
    }


def shape_of(made):
    """Return columns, dtypes and shape; text as such, whichever dtype this version of pandas has for it."""
    if isinstance(made, (tuple, list)):
        return [shape_of(part) for part in made]
    if isinstance(made, pd.DataFrame):
        return {"columns": [str(name) for name in made], "dtypes": [_kind(t) for t in made.dtypes], "rows": len(made)}
    if isinstance(made, pd.Series):
        return {"name": made.name, "dtype": _kind(made.dtype), "rows": len(made)}
    if isinstance(made, np.ndarray):
        return {"dtype": _kind(made.dtype), "shape": list(made.shape)}
    return {"type": type(made).__name__}


def _kind(dtype):
    return "text" if str(dtype) in ("object", "str") else str(dtype)


def digest_of(made):
    """Return the sha256 of columns, dtypes and values."""
    found = hashlib.sha256()
    _add_digest(found, made)
    return found.hexdigest()


def _add_digest(found, made):
    found.update(f"{json.dumps(shape_of(made))} {getattr(made, 'dtype', '')}".encode())
    if isinstance(made, (tuple, list)):
        for part in made:
            _add_digest(found, part)
    elif isinstance(made, pd.DataFrame):
        for place in range(made.shape[1]):
            _add_digest(found, made.iloc[:, place])
    elif isinstance(made, pd.Series):
        plain = made.dtype.kind in "biufM" if isinstance(made.dtype, np.dtype) else False
        _add_digest(found, made.to_numpy() if plain else made.astype(object).to_numpy())
    elif isinstance(made, np.ndarray) and made.dtype.kind != "O":
        found.update(np.ascontiguousarray(made).tobytes())
    elif isinstance(made, np.ndarray):
        found.update(repr(made.tolist()).encode())
    else:
        found.update(repr(made).encode())


# ---- books that several fits share -----------------------------------------------------------------------------------
def shared_books(relation):
    """Fits on one accountant: two declared together, one chosen later, steps charged by hand, and all that is left."""
    X, y = table()
    books = PrivacyAccountant(3.0, 1e-5, neighboring=RELATIONS[relation])
    shared = {"accountant": books, "random_state": 0}
    together = [
        DPPCA(2, epsilon=0.5, bounds=BOUNDS, **shared),
        make_flat(P3GMSynthesizer, epsilon=1.0, n_components=2, **shared),
    ]
    found = {}
    with one_thread(), quiet(), seeded_noise(0, quiet=True), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        books.plan([together[0].plan(X), together[1].plan(X, y)])
        found["planned"] = books_facts(books)
        fits = [together[0].fit(X), together[1].fit(X, y)]
        fits.append(dpvae(epsilon=0.3, bounds=BOUNDS, **shared).fit(X))
        steps = DPSGDPlan(0.05, 3, 1.0, 8.0, 12.0, neighboring=RELATIONS[relation])
        books.charge(steps, "steps by hand", private=False)
        net = DPNet(ClassifierModule, module__n_features=3, module__n_classes=2, module__hidden_layer_sizes=(4,))
        net.set_params(criterion=torch.nn.CrossEntropyLoss, plan=steps, verbose=0, random_state=0)
        net.fit(X.astype(np.float32), y)
        fits.append(MomentSynthesizer(epsilon=None, bounds=BOUNDS, **shared).fit(X))
        found["charged"] = books_facts(books)
    found["cards"] = [card_figures(fit) for fit in fits]
    weights = [value.detach().numpy() for value in net.module_.state_dict().values()]
    bits = {"sample": digest_of(fits[-1].sample(37, random_state=0)), "net": digest_of(weights)}
    return found, bits


def books_facts(books):
    """The books as plain values; the figures of the head hold no hash of the entries."""
    report = books.report()
    table = {name: [_python(value) for value in report[name]] for name in report.columns}
    totals = {name: _python(value) for name, value in report.attrs.items()}
    return {
        "charges": [[charge.label, _event(charge.event), charge.extra_delta] for charge in books.charges],
        "table": table,
        "totals": totals,
        "spent": {str(delta): books.epsilon_spent(delta) for delta in (1e-4, 1e-5, 1e-7)},
        "remaining": books.remaining(),
    }


def _python(value):
    value = value.item() if isinstance(value, np.generic) else value
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def signature_of(function):
    return {name: value for name, value in inspect.signature(function).parameters.items() if name != "self"}


# ---- files -----------------------------------------------------------------------------------------------------------
# What a sample of a file must be on every machine, and its bits.
MODELS = ("p3gm.safetensors", "privae.safetensors", "dpvae.safetensors")


def model_facts(path):
    """(Card and shapes of a sample of a model file, the bits of the sample)."""
    with one_thread():
        model = load(path)
        sample = model.sample(23, random_state=0)
    return {"card": card_figures(model), "shapes": shape_of(sample)}, {"sample": digest_of(sample)}


def write_files(folder):
    """Write what later versions must read: models, a card, the books it was charged to; return their facts."""
    X, y = table()
    arguments, reading, public = form_of("frame_target")
    with one_thread(), quiet(), seeded_noise(0, quiet=True), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        make_flat(P3GMSynthesizer, n_components=2, **SHARED, **reading, **public).fit(*arguments).save(
            folder / "p3gm.safetensors"
        )
        dpvae(**{**SHARED, "epsilon": FAST}, bounds=BOUNDS).fit(X).save(folder / "dpvae.safetensors")
        privae_mmd(**{**SHARED, "epsilon": FAST}, bounds=BOUNDS, classes=[0, 1]).fit(X, y).save(
            folder / "privae.safetensors"
        )
    with one_thread(), quiet(), tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "ledger.sqlite"
        books = PrivacyAccountant(4.0, 1e-5, ledger=path)
        together = [Charge("first, planned", gaussian_event(9.0)), Charge("names", gaussian_event(12.0), 1e-7)]
        books.plan(together)
        for charge in together:
            books.charge(charge.event, charge.label, charge.extra_delta)
        books.charge(poisson_gaussian_event(0.05, 4.0, 10), "steps on samples")
        books.charge(subset_gaussian_event("poisson_subsets", 0.02, 5.0, 4), "steps on subsets")
        DPPCA(2, epsilon=0.3, bounds=BOUNDS, accountant=books).fit(X)
        classifier = small_classifier(epsilon=0.3, bounds=BOUNDS, classes=[0, 1], accountant=books).fit(X, y)
        classifier.card_.save(folder / "classifier.card.json")
        (folder / "ledger.sqlite").write_bytes(path.read_bytes())
        return {"verified": books.verify(), "books": books_facts(books)}
