"""Released models: what a fit leaves behind (a codec and a generator), and the files that hold it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import safetensors.numpy
from scipy.special import expit

from .. import __version__
from .._parameters import GroupDivergence, LatentMixture, PrivacyUnit, grouped_parameters, make_objects
from ..data.arrays import ArrayCodec
from ..data.frame_codec import FrameCodec
from ..data.labels import label_codes, one_column
from ..generators.gaussians import latent_of, latent_state
from ..generators.layers import apply_layers, layers_of, layers_state
from ..tabular import sample_levels
from ..utils.atomic import Draft, write_atomically
from ..utils.file_checks import check_arrays
from ..utils.strict_json import read_safetensors

# What `save` says of a model with a module of the user's.
NOT_SAVED = (
    "cannot be saved, because model files hold no code: sample rows and save these, or pickle the synthesizer "
    "(pickle.dump), which needs your module to load"
)
# Rows that pass through a network at once.
CHUNK_ROWS = 4096


class ReleasedModel:
    """Released state of a fit: a codec, which turns vectors into rows, and a generator of such vectors.

    A subclass holds the generator: it has `draw`, and `_state` and `_restore` for release files.

    `component_weights` (n_components,): of the classes, where the model is conditional on them; else of the components
        of the prior, or one.
    `gradient_noise`: source of the noise of DP-SGD, in words, and whether it was private; None without DP-SGD.
    """

    gradient_noise = None

    def __init__(self, codec, row_count, component_weights):
        self.codec, self.row_count, self.component_weights = codec, row_count, component_weights

    @property
    def kind(self):
        """Whether DataFrames or arrays were fitted."""
        return "frame" if isinstance(self.codec, FrameCodec) else "array"

    @property
    def class_ratio(self):
        """Released share of each class."""
        return self.component_weights / max(self.component_weights.sum(), 1e-12)

    # ---- rows out ------------------------------------------------------------------------------------------------
    def sample(self, components, rng):
        """Rows, or (rows, y), of given components."""
        return self.codec.decode(self.draw(components, rng), components if self.codec.n_classes else None, rng)

    def draw(self, components, rng):
        """Vectors of given components: scaled rows of an array, or codes of levels of a table."""
        raise NotImplementedError

    def draw_levels(self, probabilities, rng):
        """Codes of levels, shape (n_samples, n_blocks), from their probabilities in each block of columns."""
        blocks = np.split(probabilities, np.cumsum(self.codec.n_levels)[:-1], axis=1)
        return np.stack([sample_levels(block, rng) for block in blocks], axis=1)

    def draw_outputs(self, output, rng):
        """Vectors as of `draw`, from outputs of a network: log-odds of places in the box, or logits of levels."""
        if self.kind == "frame":
            return self.draw_levels(level_probabilities(output, self.codec.n_levels), rng)
        low, high = self.codec.box
        return low + (high - low) / (1 + np.exp(-output.astype(np.float64)))

    def rows_of(self, vectors, classes, rng):
        """Rows without y from vectors as `draw` gives them."""
        decoded = self.codec.decode(vectors, classes, rng)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    # ---- rows in -------------------------------------------------------------------------------------------------
    def codes_like_fit(self, frame, y=None):
        """Codes of levels and of classes of a frame like that of `fit`; y may be left out where it came apart."""
        schema = self.codec.drawn_schema
        missing = [name for name in schema.names if name not in frame.columns]
        if self.codec.y != "none" and missing == [schema.names[-1]]:
            column = schema[missing[0]]
            filler = column.values[0] if hasattr(column, "values") and column.values else column.bounds[0]
            frame = frame.copy(deep=False)
            frame[missing[0]] = filler if y is None else np.asarray(one_column(y))
            codes, classes = self.codec.codes(frame)
            return codes, None if y is None else classes
        return self.codec.codes(frame)

    def vectors_like_fit(self, X, y=None, filler=None):
        """Scaled rows of an array, or one-hot levels of a frame, and the class codes (None where y is not known).

        `filler` stands for columns of y that X lacks; None is the middle of their bounds.
        """
        if self.kind == "frame":
            codes, classes = self.codes_like_fit(X, y)
            return self.codec.one_hot(codes), classes
        scaling = self.codec.scaling
        if missing := len(scaling.lower) - X.shape[1]:
            filler = (scaling.lower + scaling.upper)[-missing:] / 2 if filler is None else filler
            X = np.column_stack([X, np.broadcast_to(filler, (len(X), missing))])
        known = y is not None and self.codec.n_classes
        return self.codec.scale(X), label_codes(y, self.codec.classes) if known else None

    # ---- files ---------------------------------------------------------------------------------------------------
    def to_state(self):
        """Return plain values and arrays for a release file; ValueError for modules of the user's own."""
        return {
            "kind": self.kind,
            "codec": self.codec.to_state(),
            "row_count": self.row_count,
            "component_weights": self.component_weights,
            **self._state(),
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        codec = {"array": ArrayCodec, "frame": FrameCodec}[state["kind"]].from_state(state["codec"])
        return cls._restore(codec, state)


def level_probabilities(logits, n_levels):
    """Softmax within each block of columns, shape (n_samples, sum of n_levels)."""
    blocks = np.split(logits, np.cumsum(n_levels)[:-1], axis=1)
    blocks = [np.exp(block - block.max(axis=1, keepdims=True)) for block in blocks]
    return np.concatenate([block / block.sum(axis=1, keepdims=True) for block in blocks], axis=1)


class NetGenerator:
    """Sample a latent of the row's component and decode it through a network trained by DP-SGD.

    `layers`: of the decoder, where it is linear layers with ReLU between them.
    `likelihood`: "bernoulli" or "gaussian" or "table".
    `widths`: number of levels of each block, for "table".
    `module`: None once loaded from a file.
    `noise`: source of the noise of its training, in words, and whether it was private.
    """

    noise = None

    def __init__(self, space, mixture, layers, likelihood, widths=None, module=None):
        self.space, self.mixture, self.layers, self.module = space, mixture, layers, module
        self.likelihood, self.widths = likelihood, widths

    def sample(self, components, rng):
        """Draw mean rows of shape (n_samples, n_features), float32, for rows of given components."""
        latent = np.empty((len(components), self.mixture.means.shape[1]), dtype=np.float32)
        for k in np.unique(components):
            where = np.flatnonzero(components == k)
            counts = np.zeros(self.mixture.n_components, dtype=np.int64)
            counts[k] = len(where)
            latent[where] = self.mixture.sample(len(where), rng, counts=counts)[0]
        return self.decode(latent)

    def decode(self, latent):
        """Mean rows (probabilities of levels for tables) of latents, shape (n_samples, n_features), float32."""
        latent = np.asarray(latent, dtype=np.float32)
        parts = [self._decode(latent[i : i + CHUNK_ROWS]) for i in range(0, len(latent), CHUNK_ROWS)]
        return np.concatenate(parts) if parts else np.empty((0, len(self.space.center)), dtype=np.float32)

    def _decode(self, latent):
        if self.layers is None:
            import torch

            with torch.inference_mode():
                output = self.module.decoder(torch.from_numpy(latent)).numpy()
        else:
            output = apply_layers(self.layers, latent)
        if self.likelihood == "gaussian":
            return output
        return expit(output) if self.likelihood == "bernoulli" else level_probabilities(output, self.widths)

    def elbo(self, rows, components=None):
        """ELBO of each row by draws of its latent that are the same for all rows, shape (n_samples,).

        The score of a row is a function of that row alone. A component of -1 is not known.
        """
        if self.module is None:
            raise ValueError(
                "a loaded model keeps no encoder variance, so it has no ELBO: score the rows before `save`, with the "
                "estimator that was fitted"
            )
        import torch

        from ..nn._modules import DRAWS, fixed_normals, in_double

        x = np.asarray(rows, dtype=np.float64)
        n_labels = self.module.n_labels
        if n_labels:  # the component that the row's latent makes most likely, where none is known
            likely = self.mixture.component_log_prob(self.space.encode(x)).argmax(axis=1)
            components = likely if components is None else np.where(np.asarray(components) < 0, likely, components)
            x = np.concatenate([x, np.eye(n_labels)[components]], axis=1)
        shape = getattr(self.module, "noise_shape", None)
        draws = [None] if shape is None else fixed_normals(DRAWS, shape)
        module, scores = in_double(self.module), []
        with torch.inference_mode():
            for part in torch.from_numpy(x).split(CHUNK_ROWS):
                losses = [module(part, None if draw is None else draw.expand(len(part), *shape)) for draw in draws]
                scores.append(-torch.stack(losses).mean(0).numpy())
        return np.concatenate(scores) if scores else np.zeros(0)

    def to_state(self):
        """Return arrays for a release file; ValueError for a decoder module that the user gave."""
        if self.layers is None:
            raise ValueError(f"a model with your own decoder module {NOT_SAVED}")
        return {
            **latent_state(self.space, self.mixture),
            "layers": layers_state(self.layers),
            "likelihood": self.likelihood,
            "widths": self.widths,
        }

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        space, mixture = latent_of(state)
        return cls(space, mixture, layers_of(state["layers"]), state["likelihood"], state["widths"])


# ---- release files: one .safetensors file; schema, parameters and card are JSON in its header ---------------------
MODEL_FORMAT = "skdpgen-model/1"


def save_state(path, model, state):
    """Write released state to one file.

    `path`: ends in .safetensors. `model`: class name of the synthesizer. `state`: nested dicts of arrays and of what
    JSON holds; released or public values alone.
    """
    name = Path(path.target if isinstance(path, Draft) else path).name
    if not name.endswith(".safetensors"):
        raise ValueError(f"a model file ends in .safetensors; got {name!r}")
    arrays = {}
    header = {"format": MODEL_FORMAT, "model": model, "version": __version__, "state": split_arrays(state, arrays, "")}
    write_atomically(path, safetensors.numpy.save(arrays, metadata={"skdpgen": json.dumps(header)}))


def load(path):
    """Load a released model: a synthesizer that samples, with a detached copy of the accountant that its fit charged.

    Parameters
    ----------
    path : str or Path
        Written by ``save`` of a synthesizer. Nothing in it is executed: it holds arrays and JSON.

    Returns
    -------
    synthesizer
        Fitted; ``sample`` works, charging its accountant raises DetachedAccountantError. Its parameters are those of
        the fit, but for objects (networks, accountants), seeds and `noise`; a schema that was given is the whole one,
        ``schema_``. To fit it anew is to trust the file for them: bounds, and epsilon, among them.

    Raises
    ------
    ValueError
        The file is not a model of this package, is of a newer format, or its card was changed; its arrays do not fit
        one another, hold NaN or infinity, or give no sample; it is longer than 4 GiB.
    """
    header, content = read_safetensors(path, "a model file of skdpgen")
    try:
        arrays = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path}: not a model file of skdpgen") from None
    del content
    if not isinstance(header, dict) or header.get("format") != MODEL_FORMAT:
        found = header.get("format") if isinstance(header, dict) else None
        raise ValueError(f"{path}: format {found!r} is not {MODEL_FORMAT!r}; it may come from a newer skdpgen")
    synthesizers = importlib.import_module("skdpgen.synthesizers")
    if set(header) != {"format", "model", "version", "state"}:
        raise ValueError(f"{path}: not a model file of skdpgen: missing or unknown fields in its header")
    model = getattr(synthesizers, str(header.get("model")), None)
    if header.get("model") not in synthesizers.__all__ or not hasattr(model, "_from_state"):
        raise ValueError(f"{path}: unknown model {header.get('model')!r}")
    try:
        check_arrays(arrays)
        return model._from_state(join_arrays(header["state"], arrays))
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError) as error:
        raise ValueError(f"{path}: not a model file of skdpgen ({type(error).__name__} in its state)") from None


def split_arrays(value, arrays, name):
    """Move the arrays of nested dicts into `arrays`, leaving their names behind."""
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"__array__": name}
    if isinstance(value, dict):
        return {key: split_arrays(item, arrays, f"{name}.{key}" if name else key) for key, item in value.items()}
    return value


def join_arrays(value, arrays):
    """Put arrays back to where `split_arrays` took them from."""
    if isinstance(value, dict):
        if set(value) == {"__array__"}:
            return arrays[value["__array__"]]
        return {key: join_arrays(item, arrays) for key, item in value.items()}
    return value


# ---- constructor parameters that a card or a model file holds, of this version and of earlier ones ------------------
# Names of earlier versions: the names that they have now.
_RENAMED = {
    "l2_bound_sample": "gradient_bound",
    "l2_bound_group": "group_gradient_bound",
    "lr": "learning_rate",
    "n_latent": "n_components",
}
# Of each fit, and not of the model.
_LEFT_OUT = ("epsilon", "delta", "neighboring", "accountant", "random_state", "noise")
# Entries of `budget_split`, where it was a list.
_ENTRIES = {2: ("moments", "decoder"), 3: ("encoder", "mixture", "decoder")}
_DEFAULT_SHARES = {"bounds": 0.05, "clusters": 0.1}


def recorded_parameters(card, owner):
    """Return the constructor parameters that a card holds: all but objects of the caller and what `_LEFT_OUT` names.

    `owner`: class of the synthesizer.
    """
    known = owner._get_param_names()
    given = card["model"]["parameters"] if card["model"]["name"] == owner.__name__ else {}
    found = {name if name in known else _RENAMED.get(name, name): value for name, value in given.items()}
    found = {name: _without_objects(value) for name, value in found.items() if not _stands_for_an_object(value)}
    found = make_objects(owner, grouped_parameters(owner, of_today(found)))
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if name in known and name not in _LEFT_OUT
    }


def _without_objects(value):
    """A dict of the parameters of an object without those that stand for objects of the caller."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if not _stands_for_an_object(inner)}


def _stands_for_an_object(value):
    return isinstance(value, str) and (value.startswith("<") or value == "inf")


def of_today(parameters):
    """Return parameters of an earlier version in the parameter objects and dicts that hold them now."""
    found = dict(parameters)
    if "start" in found and found.pop("start") == "random":
        found.pop("start_steps", None)
        found["warm_start_steps"] = 0
    elif "start_steps" in found:
        found["warm_start_steps"] = found.pop("start_steps")
    found.pop("latent_variance", None)
    if found.get("alpha", 0) is None:
        found["alpha"] = GroupDivergence().alpha
    if "encoder" in found:
        own = found.pop("encoder"), found.pop("decoder", None)
        if own != (None, None):
            found["architecture"] = [found.get("architecture", "auto") if part is None else part for part in own]
    weighting, missing, columns = (found.pop(f, None) for f in ("unit_weighting", "missing_unit", "unit_columns"))
    if weighting not in (None, "rows") or missing not in (None, "refuse") or columns is not None:
        kept = {"weighting": weighting, "missing": missing, "columns": columns}
        kept = {name: value for name, value in kept.items() if value is not None}
        found["unit"] = PrivacyUnit(found.get("unit"), found.pop("max_rows_per_unit", None), **kept)
    split = found.get("budget_split")
    if isinstance(split, list):
        found["budget_split"] = split = dict(zip(_ENTRIES.get(len(split), ()), split))
    for name, usual in _DEFAULT_SHARES.items():
        share = found.pop(f"{name}_share", usual)
        if share != usual:
            found["budget_split"] = split = {name: share, **(split or {})}
    mixture = {"n_components": "n_mixture", "covariance_type": "covariance_type", "n_iter": "em_steps"}
    mixture = {name: found.pop(old) for name, old in mixture.items() if old in found}
    if found.get("prior") == "mixture" and len(mixture) == 3 and mixture != LatentMixture().get_params():
        found["prior"] = LatentMixture(**mixture)
    return found
