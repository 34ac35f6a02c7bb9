"""P3GM's tables and figures as benchmarks."""

from __future__ import annotations

from dataclasses import replace

from .entries import Benchmark
from .models import BASELINES, CLASSIFIER, REAL
from .published import CLASSIFIERS, PUBLISHED_AT, TABLE_5, TABLE_6, TABLE_7, TABLE_8

__all__ = ["ALL_OPTIONS", "P3GM_ENTRIES", "TABLES_AND_FIGURES"]

_OF_TABLES, _OF_IMAGES = "model_lists:models_of_tables", "model_lists:models_of_images"
_FITS = ("models", "seeds", "epsilon", "data", "device")
_TABLES = ("adult", "esr", "isolet", "credit")
_EXTRA = ("auroc_extra", "auprc_extra")
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


def _images(name):
    return Benchmark(
        name,
        f"a CNN trained on synthetic {name} images, tested on real ones",
        "images:image_benchmark",
        options=(*_FITS, "development", "quick"),
        figures=("accuracy", "fit_seconds"),
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
        options=(*_FITS, "development", "quick"),
        figures=("accuracy", "fit_seconds", "epsilon"),
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
        "sample_grids:sample_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("epsilon",),
        group_by=("data", "model"),
        arguments={"dataset": ("mnist", "fashion_mnist"), "models": BASELINES},
        quick={"dataset": ("mnist",), "models": (REAL, "P3GMSynthesizer"), "rows": 6_000},
        draw="sample_grids:draw_samples",
        takes="model_lists:models_that_sample",
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
    Benchmark(
        "figure5",
        "P3GM's Figure 5: accuracy on MNIST over the number of latent dimensions",
        "settings:components_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("accuracy", "fit_seconds", "epsilon"),
        group_by=("model", "n_components"),
        quick={**_QUICK_IMAGES, "models": ("P3GMSynthesizer",), "n_components": (5, 20)},
        axes=("n_components",),
        draw="drawing:draw_components",
        takes="model_lists:models_with_components",
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
        "settings:split_benchmark",
        options=(*_FITS, "quick", "figure"),
        figures=("auroc", "auprc", "two_way_tvd", "epsilon"),
        group_by=("model", "encoder_share"),
        quick={"seeds": (0,), "rows": 3_000, "shares": (0.3, 0.7)},
        axes=("shares",),
        draw="drawing:draw_split",
        takes="model_lists:models_with_shares",
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
