"""The benchmarks by name: what each one runs, its options, and the published figures printed beside its own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

__all__ = ["BENCHMARKS", "OPTIONS", "Benchmark"]

# Options of `skdpgen bench NAME`, by the keyword argument that they set; a benchmark names those that it takes.
OPTIONS = {
    "seeds": {"type": int, "nargs": "+", "metavar": "S", "help": "random seeds, a result each"},
    "epsilon": {"type": float, "metavar": "E", "help": "budget of each fit, at delta 1e-5 (default: 1)"},
    "data": {"metavar": "DIR", "help": "folder of the data (default: SKDPGEN_DATA)"},
    "models": {"nargs": "+", "metavar": "MODEL", "help": "synthesizers by class name; 'real data' is the reference"},
    "learned_schema": {"action": "store_true", "help": "learn bounds and categories under DP; declare nothing"},
    "quick": {"action": "store_true", "help": "a small setting that shows that everything runs"},
    "figure": {"metavar": "FILE.png", "help": "draw the paper's figure to this file (needs the extra plot)"},
}


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: a generator of results, and how they are printed.

    Parameters
    ----------
    name, summary : str
    home : str
        ``"module:function"`` in this room; imported when it runs. The function takes `options` as keyword arguments,
        each only where the caller gave it, and yields one JSON-able dict a result.
    options : tuple of str
        Names in `OPTIONS`.
    figures : tuple of str
        Fields that are averaged in the printed table, where a result has them.
    group_by : tuple of str
        Fields whose values name a row of the table; results that share them are averaged.
    references : dict of dict
        Published figures, printed below: {row name: {figure: value}}.
    arguments : dict
        Fixed keyword arguments.
    """

    name: str
    summary: str
    home: str
    options: tuple = ()
    figures: tuple = ()
    group_by: tuple = ("model",)
    references: dict = field(default_factory=dict)
    arguments: dict = field(default_factory=dict)

    def run(self, **options):
        module, function = self.home.split(":")
        yield from getattr(importlib.import_module(f"{__package__}.{module}"), function)(**self.arguments, **options)


# Printed beside our own: P3GM's own paper (ICDE 2021, Tables VI to VIII) and peers run in the same protocol
# (dpmm 0.1.9, one seed), all at (1, 1e-5).
_ADULT = {
    "P3GM, paper": {"auroc": 0.8214, "auprc": 0.5972, "two_way_tvd": 0.3867},
    "PrivBayes, paper": {"auroc": 0.8530, "auprc": 0.6374, "two_way_tvd": 0.0752},
    "AIM": {"auroc": 0.896, "auprc": 0.752, "two_way_tvd": 0.027, "fit_seconds": 576.0},
    "MST": {"auroc": 0.825, "auprc": 0.612, "two_way_tvd": 0.041, "fit_seconds": 77.0},
    "PrivBayes": {"auroc": 0.821, "auprc": 0.594, "two_way_tvd": 0.061, "fit_seconds": 47.0},
    "real data": {"auroc": 0.911, "auprc": 0.792},
}
_ESR = {"P3GM, paper": {"auroc": 0.8801, "auprc": 0.7672, "two_way_tvd": 0.0654}}
_ISOLET = {"P3GM, paper": {"auroc": 0.7498, "auprc": 0.3950, "two_way_tvd": 0.3029}}
# of the full table: its rows are five times as many
_CREDIT = {"P3GM, paper": {"auroc": 0.8991, "auprc": 0.6586}}
_MNIST = {"P3GM, paper": {"accuracy": 0.7940}, "VAE without privacy, paper": {"accuracy": 0.8571}}
_FASHION_MNIST = {"P3GM, paper": {"accuracy": 0.7485}, "VAE without privacy, paper": {"accuracy": 0.7854}}


def _table(name, rows, references):
    extra = ("auroc_extra", "auprc_extra") if name == "credit" else ()
    return Benchmark(
        name,
        f"four classifiers trained on synthetic rows {rows}, tested on real ones",
        "tables:table_benchmark",
        options=("models", "seeds", "epsilon", "data", "learned_schema"),
        figures=("auroc", "auprc", *extra, "two_way_tvd", "fit_seconds"),
        references=references,
        arguments={"table": name},
    )


def _images(name, references):
    return Benchmark(
        name,
        f"a CNN trained on synthetic {name} images, tested on real ones",
        "images:image_benchmark",
        options=("seeds", "epsilon", "data"),
        figures=("accuracy", "fit_seconds"),
        references=references,
        arguments={"dataset": name},
    )


# DP2-VAE's Table 1 at (10, 1e-5). "paper": accounted with amplification that its encoders do not allow.
_TABLE_1 = {
    "DP2-VAE, paper (unsound)": {"lr": 0.784, "mlp": 0.778, "cnn": 0.812},
    "DP-Sinkhorn (m = 3), paper": {"lr": 0.791, "mlp": 0.792, "cnn": 0.791},
    "DP-Sinkhorn (m = 1), paper": {"lr": 0.795, "mlp": 0.802, "cnn": 0.832},
    "DP-MERF, paper": {"lr": 0.791, "mlp": 0.811, "cnn": 0.820},
    "GS-WGAN, paper": {"lr": 0.79, "mlp": 0.79, "cnn": 0.80},
    "DP-CGAN, paper": {"lr": 0.60, "mlp": 0.60, "cnn": 0.63},
    "real data, paper": {"lr": 0.922, "mlp": 0.975, "cnn": 0.993},
}


def _dp2vae(name, dataset, references):
    return Benchmark(
        name,
        f"DP2-VAE's Table 1 on {dataset}: three classifiers trained on synthetic images, tested on real ones",
        "dp2vae:dp2vae_benchmark",
        options=("models", "seeds", "epsilon", "data", "quick", "figure"),
        figures=("lr", "mlp", "cnn", "frechet", "fit_seconds"),
        references=references,
        arguments={"dataset": dataset},
    )


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "step",
            "cost of a DP-SGD step against an ordinary one",
            "step:step_benchmark",
            figures=("ratio",),
            group_by=("net", "method", "noise"),
        ),
        _table("adult", "of Adult", _ADULT),
        _table("esr", "of Epileptic Seizure Recognition", _ESR),
        _table("isolet", "of ISOLET: vowels", _ISOLET),
        _table("credit", "of a 20 % subset of the credit card frauds", _CREDIT),
        Benchmark(
            "search",
            "a private search on Adult beside its candidates, each at the same budget",
            "search:search_benchmark",
            options=("seeds", "epsilon", "data", "quick"),
            figures=("auroc", "auprc", "seconds"),
        ),
        Benchmark(
            "moment_cost",
            "seconds and peak memory of MomentSynthesizer over rows, in chunks, and over columns",
            "moment_cost:cost_benchmark",
            options=("epsilon", "quick"),
            figures=("fit_seconds", "cpu_seconds", "chunk_seconds", "sample_seconds", "start_mib", "peak_mib"),
            group_by=("rows", "columns"),
        ),
        Benchmark(
            "privae-theory",
            "PriVAE's Table 1 with the true sensitivities, and the noise of one draw against two",
            "privae_theory:privae_theory_benchmark",
            figures=("paper", "add_or_remove_one", "replace_one", "std", "ratio", "epsilon_true"),
            group_by=("setting", "method"),
        ),
        Benchmark(
            "privae-step",
            "cost of a term-wise step against an ordinary one of the same loss",
            "privae_step:privae_step_benchmark",
            options=("quick",),
            figures=("seconds", "ratio"),
            group_by=("method", "noise"),
        ),
        Benchmark(
            "privae-sparsity",
            "PriVAE's Figure 1: sparsity, log-likelihood and MMD on Fashion-MNIST against epsilon",
            "privae_sparsity:privae_sparsity_benchmark",
            options=("seeds", "data", "quick", "figure"),
            figures=("sparsity", "log_likelihood", "mmd", "fit_seconds"),
            group_by=("setting", "model", "epsilon"),
        ),
        Benchmark(
            "privae-pinwheel",
            "PriVAE's Figure 2: the arms of a pinwheel in a latent space of four modes",
            "privae_pinwheel:privae_pinwheel_benchmark",
            options=("seeds", "quick", "figure"),
            figures=("purity", "modes", "error", "distance", "fit_seconds"),
            group_by=("setting", "model", "n_samples", "epsilon"),
        ),
        Benchmark(
            "privae-adult",
            "classifiers trained on rows of PriVAE, DP-VAE and P3GM, tested on real rows of Adult",
            "privae_tstr:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "quick"),
            figures=("auroc", "auprc", "two_way_tvd", "fit_seconds"),
            arguments={"dataset": "adult"},
        ),
        Benchmark(
            "privae-fashion",
            "a CNN trained on images of PriVAE, DP-VAE and P3GM, tested on real Fashion-MNIST",
            "privae_tstr:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "quick"),
            figures=("accuracy", "fit_seconds"),
            references=_FASHION_MNIST,
            arguments={"dataset": "fashion_mnist"},
        ),
        Benchmark(
            "dimension",
            "P3GM on two Gaussians of 5 to 100 columns",
            "figures:dimension_benchmark",
            options=("seeds", "epsilon", "quick"),
            figures=("auroc", "fit_seconds"),
            group_by=("dimension",),
        ),
        Benchmark(
            "accounting",
            "what the noise of the paper's settings costs by four accountings",
            "figures:accounting_benchmark",
            options=("epsilon",),
            figures=("epsilon_pld", "epsilon_rdp", "epsilon_paper", "epsilon_baseline", "ratio_baseline"),
            group_by=("data",),
        ),
        _dp2vae("dp2vae", "mnist", _TABLE_1),
        _dp2vae("dp2vae-fashion", "fashion_mnist", {}),
        Benchmark(
            "dp2vae-policies",
            "DP2-VAE's encoder policies on MNIST at one budget",
            "dp2vae:dp2vae_policies",
            options=("seeds", "epsilon", "data", "quick"),
            figures=("noise", "lr", "mlp", "cnn", "fit_seconds"),
            group_by=("model", "sampler"),
        ),
        Benchmark(
            "dp2vae-accounting",
            "noise that each sampler of subsets needs for 2,500 subsets",
            "dp2vae_theory:dp2vae_accounting",
            options=("quick",),
            figures=("noise",),
            group_by=("model", "epsilon", "steps"),
        ),
        Benchmark(
            "dp2vae-hidden-state",
            "two encoders whose true loss exceeds the composed claim",
            "dp2vae_theory:dp2vae_hidden_state",
            options=("quick", "figure"),
            figures=("epsilon",),
        ),
        Benchmark(
            "dp2vae-speed",
            "DP2-VAE's stage 1: 2,500 encoders together against one after another",
            "dp2vae:dp2vae_speed",
            options=("data", "quick"),
            figures=("encoders", "milliseconds", "seconds"),
            group_by=("method",),
        ),
        _images("mnist", _MNIST),
        _images("fashion_mnist", _FASHION_MNIST),
    )
}
