"""P3GM's figure 7: how soon P3GM, P3GM(AE) and DP-VAE learn, by the parameters released on the way."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

from skdpgen.nn import ParameterAverage

from .images import IMAGE_SHAPE, judge_accuracy
from .models import verified_epsilon
from .tables import split_rows

__all__ = ["MODELS", "Recorder", "checkpoint_benchmark"]

MODELS = ("P3GM(net)", "P3GM(AE)", "DPVAESynthesizer")
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_BOUNDS = {"mnist": (0.0, 255.0)}


def checkpoint_benchmark(
    dataset="mnist",
    models=MODELS,
    *,
    seeds=(0,),
    epsilon=1.0,
    delta=1e-5,
    shares=_SHARES,
    steps=None,
    rows=None,
    epochs=10,
    classifiers=None,
    device="cpu",
    data=None,
):
    """Yield reconstruction error and utility of the parameters after each share of the steps of DP-SGD.

    Every step of DP-SGD is a release, so a model of any step may be looked at and sampled: which ones is fixed in
    advance.

    Parameters
    ----------
    dataset : {"mnist", "credit"}, default="mnist"
    models : sequence of {"P3GM(net)", "P3GM(AE)", "DPVAESynthesizer"}
        P3GM's decoder starts from what the first phase released, so that its curves begin after that phase.
    seeds : iterable of int, default=(0,)
    epsilon, delta : float
        Budget of a fit.
    shares : sequence of float
        Shares of the steps, in ascending order.
    steps : int, default=None
        Steps of DP-SGD; None is each model's default.
    rows : int, default=None
        Training rows at most; None is all.
    epochs : int, default=10
        Of the CNN that judges images.
    classifiers : dict, default=None
        That judge rows; None is the protocol's four.
    device : str, default="cpu"
    data : str or path, default=None

    Yields
    ------
    dict
        data, model, seed, epsilon (of the card), step, share, error (sum over the columns of the squared error of a
        test row that was encoded and decoded, each column over the width of its public bounds; mean over the rows),
        accuracy (images: of the CNN) or auroc and auprc (means over the classifiers), fit_seconds (of all steps).

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 7.
    """
    task = _task(dataset, data, rows)
    for seed in seeds:
        parts = task.split(seed)
        for name in models:
            start = time.perf_counter()
            synthesizer, recorder = _fit(name, task, parts, epsilon, delta, seed, steps, shares, device)
            seconds = time.perf_counter() - start
            for share, (step, state) in zip(shares, recorder.states.items(), strict=True):
                _load_parameters(synthesizer, state)
                synthetic = synthesizer.sample(len(parts["y"]))
                yield {
                    "data": dataset,
                    "model": name,
                    "seed": int(seed),
                    "epsilon": verified_epsilon(synthesizer),
                    "delta": delta,
                    "step": step,
                    "share": share,
                    "error": _error(synthesizer, parts, task.bounds),
                    **task.judge(synthetic, parts, seed, epochs, classifiers, device),
                    "fit_seconds": round(seconds, 2),
                }


class _Images:
    """MNIST on the standard split."""

    def __init__(self, data, rows):
        from skdpgen.datasets import load_mnist

        self.bunch, self.rows = load_mnist(data), rows
        self.bounds = np.array([[0.0, 255.0]])
        self.public = {"bounds": (0, 255), "classes": list(range(10)), "image_shape": IMAGE_SHAPE}

    def split(self, seed):
        bunch, rows = self.bunch, self.rows
        return {
            "X": bunch.data[:rows], "y": bunch.target[:rows], "X_test": bunch.data_test, "y_test": bunch.target_test
        }  # fmt: skip

    def judge(self, synthetic, parts, seed, epochs, classifiers, device):
        test = parts["X_test"], parts["y_test"]
        options = {"epochs": epochs, "random_state": seed, "progress": False, "device": device}
        return {"accuracy": judge_accuracy(*synthetic, *test, **options)}


class _Credit:
    """The credit cards, split 90/10 by the seed."""

    def __init__(self, data, rows):
        from skdpgen.datasets import load_creditcard_subset

        self.bunch, self.rows = load_creditcard_subset(data), rows
        schema, target = self.bunch.schema, self.bunch.target
        self.columns = [name for name in schema if name != target]
        self.bounds = np.array([schema[name].bounds for name in self.columns], dtype=np.float64)
        self.public = {"bounds": self.bounds, "classes": list(schema[target].categories)}

    def split(self, seed):
        train, test = split_rows(self.bunch.frame, seed)
        train, target = train.head(len(train) if self.rows is None else self.rows), self.bunch.target
        return {
            "X": train[self.columns].to_numpy(np.float64), "y": train[target].to_numpy(),
            "X_test": test[self.columns].to_numpy(np.float64), "y_test": test[target].to_numpy(),
        }  # fmt: skip

    def judge(self, synthetic, parts, seed, epochs, classifiers, device):
        from skdpgen.metrics import tstr_report

        pairs = ((pd.DataFrame(X, columns=self.columns), y) for X, y in (synthetic, (parts["X_test"], parts["y_test"])))
        report = tstr_report(*pairs, positive=self.bunch.positive, classifiers=classifiers).values()
        return {score: float(np.mean([scores[score] for scores in report])) for score in ("auroc", "auprc")}


def _task(dataset, data, rows):
    tasks = {"mnist": _Images, "credit": _Credit}
    if dataset not in tasks:
        raise ValueError(f"dataset must be one of {', '.join(tasks)}; got {dataset!r}")
    return tasks[dataset](data, rows)


def _fit(name, task, parts, epsilon, delta, seed, steps, shares, device):
    """Fit one model with a recorder of its parameters; what it learns is what it learns without."""
    from skdpgen import DPSGD
    from skdpgen.nn import DPNet, P3GMModule, PriVAEModule
    from skdpgen.synthesizers import DPVAESynthesizer, P3GMSynthesizer

    budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    vae = name == "DPVAESynthesizer"
    if not vae and name not in MODELS:
        raise ValueError(f"models must be of {', '.join(MODELS)}; got {name!r}")
    make = DPVAESynthesizer if vae else P3GMSynthesizer
    # DP-VAE's nets are dense, as in the tables
    public = {key: value for key, value in task.public.items() if not (vae and key == "image_shape")}
    steps = (500 if vae else 1000) if steps is None else steps
    # an average of the parameters as in the default net of DP-VAE; none in that of P3GM
    recorder = Recorder([max(1, round(share * steps)) for share in shares], decay=0.99 if vae else 0.0)
    callbacks = [("recorder", recorder)]
    net = DPNet(PriVAEModule, lr=5e-3, callbacks=callbacks) if vae else DPNet(P3GMModule, callbacks=callbacks)
    if name == "P3GM(AE)":
        net.set_params(module__latent_variance="zero")
    own = {} if vae else {"decoder": "net"}
    training = DPSGD(steps, net=net, device=device)
    return make(**budget, **public, **own, training=training).fit(parts["X"], parts["y"]), recorder


def _load_parameters(synthesizer, state):
    model = synthesizer.model_
    if hasattr(model, "generator"):
        model.generator.layers = None  # sample through the module itself
        model.generator.module.load_state_dict(state)
    else:
        model.module.load_state_dict(state)


def _error(synthesizer, parts, bounds, most=2_000):
    X, y = parts["X_test"][:most].astype(np.float64), parts["y_test"][:most]
    if hasattr(synthesizer, "reconstruct"):
        back = synthesizer.reconstruct(X, y)
    else:
        back = synthesizer.inverse_transform(synthesizer.transform(X))
    width = bounds[:, 1] - bounds[:, 0]
    return float(np.mean(np.sum(np.square((back - np.clip(X, *bounds.T)) / width), axis=1)))


class Recorder(ParameterAverage):
    """Average of the parameters that is also kept at steps chosen in advance.

    Parameters
    ----------
    at : sequence of int
        Steps, in ascending order; the first is 1.
    decay : float, default=0.0
        Of the average; 0 is the parameters themselves.

    Attributes
    ----------
    states : dict of int to state dict
        Step -> average of the module's parameters, on the CPU.
    """

    def __init__(self, at, decay=0.0):
        super().__init__(decay)
        self.at = at
        self.states = {}

    # the net is a template that fit clones: what is kept has to be found here
    def __sklearn_clone__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def on_batch_end(self, net, training=True, **kwargs):
        super().on_batch_end(net, training=training, **kwargs)
        step = int(self.step_)
        if step in self.at:
            names = [name for name, p in net.module_.named_parameters() if p.requires_grad]
            state = {name: value.detach().cpu().clone() for name, value in net.module_.state_dict().items()}
            averages = dict(zip(names, (a.cpu().clone() for a in self.average_), strict=True))
            self.states[step] = {**state, **averages}
