"""The benchmarks by name: what each one runs, its options, and the published figures printed beside its own."""

from __future__ import annotations

from dataclasses import replace

from .entries import OPTIONS, Benchmark
from .p3gm_entries import ALL_OPTIONS, P3GM_ENTRIES, TABLES_AND_FIGURES
from .published import DP2VAE_TABLE_1, PUBLISHED_AT, TABLE_7

__all__ = ["BENCHMARKS", "OPTIONS", "Benchmark"]


def _dp2vae(name, dataset, references):
    return Benchmark(
        name,
        f"DP2-VAE's Table 1 on {dataset}: three classifiers trained on synthetic images, tested on real ones",
        "dp2vae:dp2vae_benchmark",
        options=("models", "seeds", "epsilon", "data", "device", "quick", "figure"),
        figures=("lr", "mlp", "cnn", "frechet", "fit_seconds"),
        references=references,
        arguments={"dataset": dataset},
        takes="dp2vae:MODELS",
    )


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        *P3GM_ENTRIES,
        Benchmark(
            "step",
            "cost of a DP-SGD step against an ordinary one",
            "step:step_benchmark",
            figures=("ratio",),
            group_by=("net", "method", "noise"),
        ),
        Benchmark(
            "search",
            "a private search on Adult beside its candidates, each at the same budget",
            "search:search_benchmark",
            options=("seeds", "epsilon", "data", "quick"),
            figures=("auroc", "auprc", "gain", "seconds"),
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
            options=("models", "settings", "seeds", "epsilon", "data", "device", "quick", "figure"),
            figures=("sparsity", "log_likelihood", "mmd", "fit_seconds"),
            group_by=("setting", "epsilon", "model"),
            quick={"epsilon": (4.0, float("inf")), "steps": 20, "n_train": 6_000, "n_test": 300},
            axes=("seeds", "settings", "epsilon", "models"),
            draw="privae_sparsity:draw_sparsity",
            takes="privae_sparsity:METHODS",
        ),
        Benchmark(
            "privae-pinwheel",
            "PriVAE's Figure 2: the arms of a pinwheel in a latent space of four modes",
            "privae_pinwheel:privae_pinwheel_benchmark",
            options=("settings", "seeds", "quick", "figure"),
            figures=("purity", "modes", "error", "distance", "fit_seconds"),
            group_by=("setting", "model", "n_samples", "epsilon"),
        ),
        Benchmark(
            "privae-adult",
            "classifiers trained on rows of PriVAE, DP-VAE and P3GM, tested on real rows of Adult",
            "privae_tstr:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "device", "quick"),
            figures=("auroc", "auprc", "two_way_tvd", "fit_seconds"),
            arguments={"dataset": "adult"},
            takes="privae_tstr:MODELS",
        ),
        Benchmark(
            "privae-fashion",
            "a CNN trained on images of PriVAE, DP-VAE and P3GM, tested on real Fashion-MNIST",
            "privae_tstr:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "device", "quick"),
            figures=("accuracy", "fit_seconds"),
            published=TABLE_7,
            published_at=PUBLISHED_AT,
            group_by=("data", "model"),
            arguments={"dataset": "fashion_mnist"},
            takes="privae_tstr:MODELS",
        ),
        _dp2vae("dp2vae", "mnist", DP2VAE_TABLE_1),
        _dp2vae("dp2vae-fashion", "fashion_mnist", {}),
        Benchmark(
            "dp2vae-policies",
            "DP2-VAE's encoder policies on MNIST at one budget",
            "dp2vae:dp2vae_policies",
            options=("seeds", "epsilon", "data", "device", "quick"),
            figures=("noise", "lr", "mlp", "cnn", "fit_seconds"),
            axes=("seeds", "policies"),
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
            "dp2vae_speed:dp2vae_speed",
            options=("data", "quick"),
            figures=("encoders", "milliseconds", "seconds", "peak_gib", "ratio"),
            group_by=("method",),
        ),
    )
}
BENCHMARKS["scale"] = replace(BENCHMARKS["moment_cost"], name="scale")
BENCHMARKS["all"] = Benchmark(
    "all",
    "every table and figure of P3GM's paper, the cost of a step, and the cost over rows and columns",
    "",
    options=ALL_OPTIONS,
    parts=(*TABLES_AND_FIGURES, "step", "scale"),
)
