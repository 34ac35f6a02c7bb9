"""What a run is to do, part by part, with the options and models that each part takes."""

from __future__ import annotations

import os
import sys

from .registry import BENCHMARKS

__all__ = ["check_drawing", "plan"]


def plan(benchmark, options):
    """Return what is to be run: benchmarks, their options, and where each draws its figure.

    Parameters
    ----------
    benchmark : Benchmark
    options : dict
        What the caller gave. Of several parts each gets what it takes; a model that it cannot take is left out, and a
        part that is left without any.

    Returns
    -------
    list of (Benchmark, dict, str or None)

    Raises
    ------
    ValueError
        A model is none that the benchmark, or any of its parts, can take.
    """
    if not benchmark.parts:
        _check_models(options, benchmark.name, benchmark.models())
        # a benchmark that draws its figure itself is given the name of the file
        own = {name: value for name, value in options.items() if not (name == "figure" and benchmark.draw)}
        return [(benchmark, own, options.get("figure"))]
    parts = [BENCHMARKS[name] for name in benchmark.parts]
    known = [part.models() for part in parts if "models" in part.options]
    if None not in known:
        _check_models(options, benchmark.name, tuple(dict.fromkeys(name for names in known for name in names)))
    chosen = [(part, _options_of(part, options)) for part in parts]
    return [planned for part, own in chosen if own is not None for planned in plan(part, own)]


def _check_models(options, name, known):
    if refused := _not_among(known, options):
        raise ValueError(
            f"the benchmark {name} cannot take the models {', '.join(refused)}: it takes {', '.join(known)}"
        )


def _not_among(known, options):
    named = [model for model in options.get("models", ()) if isinstance(model, str)]
    return [model for model in named if known is not None and model not in known]


def _options_of(part, options):
    """The options that one of several parts takes; its figure goes into the folder. None: no model is left to it."""
    own = {name: value for name, value in options.items() if name in part.options}
    if left_out := _not_among(part.models(), own):
        own["models"] = [model for model in own["models"] if model not in left_out]
        rest = "" if own["models"] else ", and is not run"
        print(f"skdpgen: {part.name} cannot take {', '.join(left_out)}{rest}", file=sys.stderr)
        if rest:
            return None
    folder = options.get("figures")
    if folder is not None and "figure" in part.options:
        os.makedirs(folder, exist_ok=True)
        own["figure"] = os.path.join(folder, f"{part.name}.png")
    return own


def check_drawing(path=None):
    """Raise where a figure cannot be drawn, or not to `path`: known before the first fit, not after the last."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib: pip install skdpgen[plot]") from None
    if path is None:
        return
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder} to draw {name} into")
    known = Figure().canvas.get_supported_filetypes()
    if os.path.splitext(name)[1][1:].lower() not in known:
        raise ValueError(f"{name} does not say how to draw it: it must end in one of .{', .'.join(sorted(known))}")
