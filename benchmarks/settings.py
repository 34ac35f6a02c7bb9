"""Two figures of P3GM over one of its settings: the latent dimensions on images, the split of the budget on a table."""

from __future__ import annotations

from dataclasses import replace

from skdpgen.synthesizers._budget import paper_settings

from .images import image_benchmark
from .models import find_model
from .tables import table_benchmark

__all__ = ["components_benchmark", "split_benchmark"]


def components_benchmark(
    dataset="mnist",
    models=("P3GMSynthesizer", "P3GM(net)"),
    n_components=(2, 5, 10, 20, 50, 100, 200),
    *,
    seeds=(0,),
    epsilon=1.0,
    rows=None,
    n_samples=60_000,
    epochs=10,
    device="cpu",
    data=None,
):
    """Yield the accuracy of P3GM on images over the number of latent dimensions.

    Parameters
    ----------
    n_components : sequence of int
    dataset, models, seeds, epsilon, rows, n_samples, epochs, device, data
        As for `image_benchmark`.

    Yields
    ------
    dict
        As `image_benchmark`, and ``n_components``.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 5.
    """
    options = {"epsilon": epsilon, "rows": rows, "n_samples": n_samples, "epochs": epochs, "device": device}
    for n in n_components:
        for name in models:
            for result in image_benchmark(
                dataset, (_with(name, dataset, n_components=n),), seeds, data=data, **options
            ):
                yield {**result, "n_components": n}


def split_benchmark(
    table="adult",
    models=("P3GM(net)",),
    shares=(0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
    *,
    seeds=(0, 1, 2, 3, 4),
    epsilon=1.0,
    rows=None,
    device="cpu",
    data=None,
):
    """Yield the utility of P3GM over the encoder's share of the budget.

    The decoder has the rest; of a preset, decoder and mixture have it in the preset's proportion.

    Parameters
    ----------
    shares : sequence of float
        In the squared parameter of Gaussian differential privacy.
    table, models, seeds, epsilon, rows, device, data
        As for `table_benchmark`; models that train a decoder.

    Yields
    ------
    dict
        As `table_benchmark`, and ``encoder_share``.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 8.
    """
    options = {"seeds": seeds, "epsilon": epsilon, "rows": rows, "device": device, "data": data}
    for share in shares:
        for name in models:
            _, mixture, decoder = _with(name, table).settings.get("budget_split", (0.0, 0.0, 1.0))
            rest = (1.0 - share) / (mixture + decoder)
            model = _with(name, table, budget_split=(share, mixture * rest, decoder * rest))
            for result in table_benchmark(table, (model,), **options):
                yield {**result, "encoder_share": share}


def _with(name, data, **settings):
    """A model with other settings; a preset is written out, for a synthesizer refuses to have its own replaced."""
    model = find_model(name)
    own = dict(model.settings)
    preset = own.pop("preset", None)
    if preset is not None:
        own = {**paper_settings(preset.format(data=data)), **own}
    return replace(model, settings={**own, **settings})
