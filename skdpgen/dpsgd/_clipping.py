"""Clipped sums of the gradients of single examples, at about the cost of one ordinary backward pass.

One forward pass records the input of each supported layer. One backward pass finds the gradient of the summed losses
with respect to each layer's *output*, and no parameter gradients. The two give the norm of every example's gradient
(see `_layers`), hence its clip factor, and one product for each layer gives the weighted sum. An example whose gradient
is not finite contributes nothing. Where a unit of privacy has several rows, they are one example together (`_units`).
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_leaves, tree_map

from .._types import BoundedSum
from ._layers import _ROWS_CANCELLATION, RULES, Pool, UnsupportedShapeError, add_product
from ._places import MOST_ROWS, room_for_units
from ._seeding import torch_lock
from ._units import Arrangement, RowUnits, rule_of_units

# Scalars of example gradients that the reference path holds at once (256 MB in float32).
_REFERENCE_SCALARS = 2**26
# Smallest clip factor: float32 holds numbers below 2**-126 with fewer and fewer digits, and a factor that is rounded up
# leaves a gradient above its clip norm.
_SMALLEST_FACTOR = 2.0**-100
# A clipped gradient of a layer is the product of its input and of the gradient by its output, one of them times the
# clip factor, which rounds each entry by up to 2**-150. If no entry of either is above 2**110 times the clip norm, this
# moves the product by at most 2**-40 of the clip norm for each place and root of the number of weights.
_LARGEST_ENTRY = 2.0**110


class LossModule(nn.Module):
    """A module and its loss for each example, as one module whose output is the losses, shape (batch,).

    Parameters
    ----------
    module : Module
    per_example_loss : callable or Module, default=None
        ``per_example_loss(module, *inputs)`` -> tensor of shape (batch,); None: ``module(*inputs)`` gives the losses.
    """

    def __init__(self, module, per_example_loss=None):
        super().__init__()
        self.module = module
        self.per_example_loss = per_example_loss

    def forward(self, *inputs):
        if self.per_example_loss is None:
            return self.module(*inputs)
        return self.per_example_loss(self.module, *inputs)


class Aggregate:
    """Base class of callables that turn a batch into a sum with a bound for each record.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives losses of shape (batch,), each a function of one example.

    Attributes
    ----------
    names : list of str
        Names of the trainable parameters, in the order of the sums.
    parameters : list of Parameter
    """

    def __init__(self, root):
        self.root = root
        named = [(name, p) for name, p in root.named_parameters() if p.requires_grad]
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]

    def __call__(self, *inputs, mask=None, units=None) -> BoundedSum:
        """Return the sum over one batch.

        Parameters
        ----------
        *inputs : tensors (or trees of tensors) with the batch leading
        mask : bool tensor, shape (batch,), default=None
            False where a row is padding.
        units : int array of shape (batch,), default=None
            Unit of each row, where units of several rows are clipped; negative where a row is padding.

        Returns
        -------
        BoundedSum
            Its value is a list of tensors shaped as `parameters`. The buffers are reused by the next call.
        """
        self.reset()
        self.add(*inputs, mask=mask, **({} if units is None else {"units": units}))
        return self.result()

    def _mask(self, inputs, mask):
        """Return the mask, or one that holds every row."""
        device = self.parameters[0].device
        return torch.ones(len(first_leaf(inputs)), dtype=torch.bool, device=device) if mask is None else mask


class ClippedSum(Aggregate):
    """Callable that turns a batch into the clipped sum of the gradients of its examples, or of its units.

    Parameters
    ----------
    root : Module
        As in `Aggregate`.
    l2_bound : float
        Bound of a contribution, stated on the result.
    clip_norm : float, default=None
        Norm to which gradients are clipped; None means `l2_bound`. Infinite: no clipping.
    path : {"fast", "vmap", "loop"}, default="fast"
        How gradients of single examples are found; `skdpgen.dpsgd.choose_path` says which is right.
    reference_scalars : int
        About how many scalars of example gradients "vmap" and "loop" hold at once.
    weighting : {"rows", "units"}, default=None
        The gradient of a unit is the sum ("rows") or the mean ("units") over its rows, and is clipped once; batches
        then come with `units`. None: each row is one example.
    """

    def __init__(
        self, root, l2_bound, *, clip_norm=None, path="fast", reference_scalars=_REFERENCE_SCALARS, weighting=None
    ):
        if path not in ("fast", "vmap", "loop"):
            raise ValueError(f"path must be 'fast', 'vmap' or 'loop'; got {path!r}")
        if weighting not in (None, "rows", "units"):
            raise ValueError(f"weighting must be 'rows', 'units' or None; got {weighting!r}")
        super().__init__(root)
        self.weighting = weighting
        self.l2_bound = l2_bound
        self.clip_norm = l2_bound if clip_norm is None else clip_norm
        self.path = path
        self._reference_scalars = reference_scalars
        # sums of one pass in float32, or of all passes in float64; those of earlier passes; those that are returned
        self._sums = self._totals = self._results = None
        self._beta, self._several_passes = 0, False
        self._pool = Pool()

    def reset(self):
        """Forget what was added."""
        if self._sums is None or any(s.device != p.device for s, p in zip(self._sums, self.parameters)):
            self._exact = self.weighting is not None  # the rows of a unit may cancel
            dtype = {"dtype": torch.float64} if self._exact else {}
            self._sums = [torch.empty_like(p, requires_grad=False, **dtype) for p in self.parameters]
            self._totals, self._results = None, self._sums
            if self._exact:
                self._results = [torch.empty_like(p, requires_grad=False) for p in self.parameters]
        self._beta, self._several_passes = 0, False  # the first addition overwrites

    def add(self, *inputs, mask=None, units=None, shift=None):
        """Add the examples, or the units, of one physical batch, one contribution each.

        Parameters
        ----------
        *inputs, mask, units
            As in a call. All rows of a unit are in one physical batch: otherwise it would count as several.
        shift : list of tensors, default=None
            Shaped as `parameters`, finite: added to each example's gradient before clipping; not with `units`.
        """
        mask = self._mask(inputs, mask)
        if (units is None) != (self.weighting is None) or (units is not None and shift is not None):
            raise ValueError("units of rows come with weighting= of the sum, and without a shift")
        if (batch := len(mask)) == 0:
            return
        if self._beta and not self._exact:
            self._close_pass()
        with _plain_float32(self.parameters[0].device):
            if units is not None:
                self._add_units(inputs, RowUnits(units, mask))
            elif self.path == "fast":
                self._add_fast(inputs, mask, shift)
            else:
                self._add_reference(inputs, mask, batch, self.path, shift)

    def result(self) -> BoundedSum:
        """Return the sum of everything added since `reset`: zero for an empty batch, which is a legal step."""
        self._wrote(self._sums)
        if self._several_passes:
            self._close_pass()
        if self._exact or self._several_passes:
            for result, total in zip(self._results, self._sums if self._exact else self._totals):
                result.copy_(total)
        unit = "record" if self.weighting is None else "unit"
        return BoundedSum(self._results, add_or_remove_one=self.l2_bound, unit=unit)

    def _close_pass(self):
        """Add the sums of a pass to those of earlier ones, in float64: there may be many passes."""
        if self._totals is None:
            self._totals = [torch.empty_like(s, dtype=torch.float64) for s in self._sums]
        for total, of_pass in zip(self._totals, self._sums):
            if self._several_passes:
                total.add_(of_pass)
            else:
                total.copy_(of_pass)
        self._beta, self._several_passes = 0, True

    def square_norms(self, *inputs):
        """Squared gradient norm of every row, float64, shape (batch,). Private; for tests and checks."""
        mask = self._mask(inputs, None)
        batch = len(mask)
        with _plain_float32(self.parameters[0].device):
            if self.path == "fast":
                return sum(rule.square_norms for _, rule in _rules(self._record(inputs, mask), batch, self._pool))
            return sum(self._pool.square_norms(g) for g in self._example_gradients(inputs, batch, self.path))

    def _factors(self, square_norms, mask):
        """Clip factors of the examples; zero for padding."""
        factors = clip_factors(square_norms.sqrt(), self.clip_norm)
        return torch.where(mask, factors, 0.0).to(self.parameters[0].dtype)

    def _record(self, inputs, mask):
        """Run forward and backward; return (name, layer, activation, output gradient) of every supported layer.

        The gradients are those of the losses times `mask`, which may hold weights.
        """
        layers = {m: name for name, m in self.root.named_modules() if type(m) in RULES and _has_trainable(m)}
        seen = []

        def record(layer, args, output):
            if output.requires_grad:
                seen.append((layer, args[0].detach(), args[0]._version, get_gradient_edge(output)))

        # before the user's hooks, which may replace the output
        handles = [m.register_forward_hook(record, prepend=True) for m in layers]
        try:
            with torch.enable_grad():
                losses = self.root(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        if losses.shape != mask.shape:
            raise ValueError(
                f"the loss must have one entry for each record, {tuple(mask.shape)}; got {tuple(losses.shape)}"
            )
        if len({layer for layer, *_ in seen}) != len(seen):
            raise SharedLayerError("a layer was used twice in one forward pass")
        if not seen or not losses.requires_grad:
            return []
        # Edges rather than outputs: an activation that overwrites a layer's output in place does no harm, and the
        # backward pass ends there, computing no parameter gradients.
        edges = [edge for *_, edge in seen]
        gradients = torch.autograd.grad(losses, edges, mask.to(losses.dtype), allow_unused=True)
        if any(activation._version != version for _, activation, version, _ in seen):
            raise SharedLayerError("a layer's input was overwritten after the layer used it")
        # one layout in every step: kernels round by it, and rows that are set to zero are in a copy
        return [
            (layers[layer], layer, a.contiguous(), g.contiguous())
            for (layer, a, *_), g in zip(seen, gradients)
            if g is not None
        ]

    def _add_fast(self, inputs, mask, shift):
        batch = mask.shape[0]
        try:
            records = self._record(inputs, mask)
            rules = _rules(records, batch, self._pool)
        except (SharedLayerError, UnsupportedShapeError):
            # only if the path through the module depends on its input, unseen by `choose_path`: the same sum, slowly
            self._add_reference(inputs, mask, batch, "loop", shift)
            return
        square_norms = self._square_norms_of(records, rules, mask, shift)
        unusable = torch.zeros_like(mask)
        while bool((more := ~torch.isfinite(square_norms) & ~unusable).any()):
            # 0 * nan is nan, so the rows become zero. No second pass: dropout would drop other units. A factor must be
            # that of the very gradient that it scales, so the norms of the others are computed again too.
            unusable |= more
            records = [(n, m, _without(a, unusable), _without(g, unusable)) for n, m, a, g in records]
            rules = _rules(records, batch, self._pool)
            square_norms = self._square_norms_of(records, rules, mask, shift).masked_fill_(unusable, math.inf)
        factors = self._factors(square_norms, mask)
        sums = dict(zip(self.names, self._sums))
        for name, rule in rules:
            own = {p: sums.pop(f"{name}.{p}", None) for p in ("weight", "bias")}
            rule.weighted_sum(factors, {p: total for p, total in own.items() if total is not None}, self._beta)
        self._wrote(sums.values())
        if shift is not None:
            for total, moved in zip(self._sums, shift):
                total.add_(moved, alpha=float(factors.sum()))

    def _square_norms_of(self, records, rules, mask, shift):
        """Squared norm of each example's gradient; infinite where an entry is too large."""
        found = sum((rule.square_norms for _, rule in rules), torch.zeros_like(mask, dtype=torch.float64))
        if shift is not None:
            found += 2 * self._inner_products(records, shift, len(mask)) + square_norm(shift)
            found.clamp_(min=0.0)
        return found.masked_fill_(_has_larger_entry(records, mask, _LARGEST_ENTRY * self.clip_norm), math.inf)

    def _add_units(self, inputs, units):
        """Add the gradients of units, each clipped once."""
        try:
            passes = self._passes(inputs, units) if self.path == "fast" else None
            rules = None if passes is None else self._rules_of_units(passes)
        except (SharedLayerError, UnsupportedShapeError):
            passes = None  # as in `_add_fast`
        if passes is None:
            self._add_units_slowly(inputs, units, "loop" if self.path == "fast" else self.path)
            return
        square_norms = self._square_norms_of_units(rules, passes, units)
        unusable = torch.zeros_like(square_norms, dtype=torch.bool)
        while bool((more := ~torch.isfinite(square_norms) & ~unusable).any()):
            # all rows of the unit become zero, those too whose gradients are finite; else as in `_add_fast`
            unusable |= more
            passes = [(_without_units(records, unusable, arranged), arranged) for records, arranged in passes]
            rules = self._rules_of_units(passes)
            square_norms = self._square_norms_of_units(rules, passes, units).masked_fill_(unusable, math.inf)
        factors = self._factors(square_norms, torch.arange(len(units) + 1, device=square_norms.device) < len(units))
        sums = dict(zip(self.names, self._sums))
        for of_pass, arranged in rules:
            for name, rule in of_pass:
                own = {p: sums.pop(f"{name}.{p}", None) for p in ("weight", "bias")}
                own = {p: total for p, total in own.items() if total is not None}
                rule.weighted_sum(factors[arranged.codes], own, self._beta)
        self._wrote(sums.values())

    def _passes(self, inputs, units):
        """Records of each pass over rows of the batch, and the arrangement of its rows."""
        device = self.parameters[0].device
        arranged, weights = Arrangement(units.codes, device), units.weights(self.weighting).to(device)
        return [(arranged.take_records(self._record(inputs, weights)), arranged)]

    def _rules_of_units(self, passes):
        names = [name for records, _ in passes for name, *_ in records]
        if len(set(names)) < len(names):
            raise SharedLayerError("a layer was used in two passes")
        return [
            ([(n, rule_of_units(m, a, g, arranged, self._pool)) for n, m, a, g in records], arranged)
            for records, arranged in passes
        ]

    def _square_norms_of_units(self, rules, passes, units):
        """Squared norm of each unit's gradient over all passes, and, as the last entry, that of all padding."""
        found = torch.zeros(len(units) + 1, dtype=torch.float64, device=self.parameters[0].device)
        for of_pass, arranged in rules:
            codes = arranged.codes % len(found)
            for _, rule in of_pass:
                found.index_add_(0, codes, rule.square_norms)
        for records, arranged in passes:
            rows = _has_larger_entry(records, arranged.of_row, _LARGEST_ENTRY * self.clip_norm)
            found[arranged.codes[arranged.of_row[rows]]] = math.inf
        return found

    def _add_units_slowly(self, inputs, units, path):
        """As `_add_reference`: the gradients of rows are formed and added up by unit, some units at a time."""
        most = max(1, self._reference_scalars // sum(p.numel() for p in self.parameters))
        # in one pass over all places, or each row alone: what one row gives must not depend on where others stand
        whole = None
        if path != "loop" and len(units.codes) <= most:
            whole = self._example_gradients(tree_map(torch.Tensor.contiguous, inputs), len(units.codes), path)
        order = np.argsort(units.codes, kind="stable")[int((units.codes < 0).sum()) :]
        ends, first = np.cumsum(units.sizes), 0
        weights = units.weights(self.weighting)
        while first < len(units):
            begin = ends[first] - units.sizes[first]
            last = max(first + 1, int(np.searchsorted(ends, begin + most, side="right")))
            rows = torch.from_numpy(order[begin : ends[last - 1]])
            codes = torch.from_numpy(units.codes)[rows] - first
            if whole is None:
                taken = tree_map(lambda x: x[rows.to(x.device)], inputs)  # noqa: B023
                gradients = self._example_gradients(taken, len(rows), "loop")
            else:
                gradients = [g[rows.to(g.device)] for g in whole]
            codes, scale = codes.to(gradients[0].device), weights[rows].to(gradients[0].device)
            gradients = [g * scale.to(g.dtype).view(-1, *[1] * (g.dim() - 1)) for g in gradients]
            sizes = sum(self._pool.square_norms(g) for g in gradients).sqrt_()
            sizes = sizes.new_zeros(last - first).index_add_(0, codes, sizes).square_()
            sizes[torch.from_numpy(units.sizes[first:last] == 1)] = 0.0
            gradients = [g.new_zeros((last - first, *g.shape[1:])).index_add_(0, codes, g) for g in gradients]
            self._add_formed(gradients, torch.ones_like(sizes, dtype=torch.bool), _ROWS_CANCELLATION * sizes)
            first = last
        self._wrote(self._sums)

    def _inner_products(self, records, direction, batch):
        """``<gradient, direction>`` of every example, float64.

        A layer's output is linear in its parameters, so this is the product of the gradient with respect to the output
        and the layer's output at the parameters `direction`.
        """
        parts = dict(zip(self.names, direction))
        found = torch.zeros(batch, dtype=torch.float64, device=direction[0].device)
        for name, layer, activation, gradient in records:
            turned = copy.copy(layer)  # `forward` below runs no hooks of the user's
            turned._parameters = {
                p: None if value is None else parts.get(f"{name}.{p}", torch.zeros_like(value))
                for p, value in layer._parameters.items()
            }
            if (padding := getattr(layer, "padding_idx", None)) is not None:  # no gradient reaches that row
                turned._parameters["weight"] = turned._parameters["weight"].index_fill(
                    0, torch.tensor(padding, device=activation.device), 0.0
                )
            with torch.no_grad():
                moved = turned.forward(activation)
            found += (moved * gradient).reshape(batch, -1).sum(1, dtype=torch.float64)
        return found

    def _wrote(self, unwritten):
        """Set sums that the first addition did not write to zero."""
        if not self._beta:
            for total in unwritten:
                total.zero_()
        self._beta = 1

    def _example_gradients(self, inputs, batch, path):
        if path == "vmap":
            return example_gradients_vmap(self.root, self.names, inputs)
        return example_gradients_loop(self.root, self.names, inputs, batch)

    def _add_reference(self, inputs, mask, batch, path, shift=None):
        step = max(1, self._reference_scalars // sum(p.numel() for p in self.parameters))
        for i in range(0, batch, step):
            j = min(i + step, batch)
            gradients = self._example_gradients(tree_map(lambda x: x[i:j], inputs), j - i, path)  # noqa: B023
            if shift is not None:
                gradients = [gradient + moved for gradient, moved in zip(gradients, shift)]
            self._add_formed(gradients, mask[i:j])

    def _add_formed(self, gradients, mask, allowance=0.0):
        """Add gradients of examples that were formed, clipped; `allowance` is added to their squared norms."""
        if self._beta and not self._exact:
            self._close_pass()  # blocks may be small: each is a pass
        factors = self._factors(sum(self._pool.square_norms(g) for g in gradients) + allowance, mask)
        for total, gradient in zip(self._sums, gradients):
            rows = torch.where((factors > 0).unsqueeze(1), gradient.flatten(1), 0.0)
            add_product(total.view(-1), rows, factors, self._beta, self._pool)
        self._beta = 1


class PartedSum(ClippedSum):
    """`ClippedSum` of a network of models, each of which gets the records of its part alone.

    Parameters
    ----------
    root : Module
        ``root.module`` is the network: ``part_of(X)`` gives the part of each row, and within ``only(part)`` one model
        gives the losses.
    plan : PartedPlan
    path : {"fast", "vmap", "loop"}, default="fast"

    Notes
    -----
    The sum equals that of `ClippedSum` with all records for all models, in a fraction of the time. Rows of a part are
    computed in batches of one shape, padded with zeros, at places drawn as in `PoissonLoader`.
    """

    def __init__(self, root, plan, *, path="fast", rng=None):
        super().__init__(root, plan.l2_bound, clip_norm=plan.clip_norm, path=path, weighting=plan.weighting)
        sizes = plan.largest_part_sizes
        self._places = [room_for_units(size, plan.unit, len(sizes)) for size in sizes]
        self._rng, self._checked = rng, False

    def add(self, *inputs, mask=None, units=None):
        """Add the records of one physical batch, each to the block of its part."""
        if units is not None:
            self._check_layers(inputs)
            super().add(*inputs, mask=mask, units=units)
            return
        network, X = self.root.module, inputs[0]
        mask, parts = self._mask(inputs, mask), network.part_of(X)
        for part, room in enumerate(self._places):
            rows = torch.nonzero(mask & (parts == part)).flatten()
            at = self._drawn(len(rows), room)
            size = min(room, MOST_ROWS)
            with network.only(part):
                for first in range(0, max(room, len(rows)), size):
                    here = (at >= first) & (at < first + size)
                    if here.any():
                        own, place = rows[torch.from_numpy(here).to(rows.device)], at[here] - first
                        taken = tree_map(lambda x: _at_places(x, own, place, size), inputs)  # noqa: B023
                        filled = torch.zeros(size, dtype=torch.bool, device=X.device)
                        filled[torch.from_numpy(place).to(X.device)] = True
                        super().add(*taken, mask=filled)

    def _check_layers(self, inputs):
        """Take the slow path where parts share a layer: a row of zeros shows it, before any private row does."""
        if self._checked or self.path != "fast":
            return
        self._checked, found = True, []
        zeros = tree_map(lambda x: x.new_zeros((1, *x.shape[1:])), inputs)
        weight = torch.zeros(1, dtype=torch.float64, device=first_leaf(inputs).device)
        try:
            for part in range(len(self._places)):
                with self.root.module.only(part):
                    found += [name for name, *_ in self._record(zeros, weight)]
        except SharedLayerError:
            self.path = "loop"
        if len(set(found)) < len(found):
            self.path = "loop"

    def _drawn(self, n, room):
        """Places of n rows, out of `room`, or of n where there is less room."""
        return np.arange(n) if self._rng is None else self._rng.permutation(max(n, room))[:n]

    def _passes(self, inputs, units):
        """One pass for each part. The rows of a unit may lie in several, so its norm is that over all of them."""
        network, passes = self.root.module, []
        device = inputs[0].device
        parts = network.part_of(inputs[0]).cpu().numpy()
        weights = units.weights(self.weighting).to(device)
        for part, room in enumerate(self._places):
            rows = np.flatnonzero((units.codes >= 0) & (parts == part))
            places = min(room, len(parts))  # no more than the batch has
            at, length = self._drawn(len(rows), places), max(places, len(rows))
            if len(rows):
                codes = np.full(length, -1, dtype=np.int64)
                codes[at] = units.codes[rows]
                arranged, rows = Arrangement(codes, device), torch.from_numpy(rows).to(device)
                taken = tree_map(lambda x: _at_places(x, rows, at, length), (inputs, weights))  # noqa: B023
                with network.only(part):
                    passes.append((arranged.take_records(self._record(*taken)), arranged))
        return passes


def _at_places(x, rows, places, size):
    """The rows of a tensor at places of one of `size` rows; the others are zero."""
    out = x.new_zeros((size, *x.shape[1:]))
    out[torch.from_numpy(places).to(x.device)] = x[rows]
    return out


def clip_factors(norms, bound):
    """Factors that clip vectors of these norms to `bound`; 0 if a norm is not finite or needs too small a factor."""
    factors = (bound / norms.clamp(min=1e-30)).clamp(max=1.0)
    return torch.where(norms.isfinite() & (factors >= _SMALLEST_FACTOR), factors, 0.0)


def square_norm(vector) -> float:
    """Squared norm of a list of tensors, accumulated in float64."""
    return float(sum(part.double().square().sum() for part in vector))


def _rules(records, batch, pool):
    return [(name, RULES[type(layer)](layer, a, g, batch, pool)) for name, layer, a, g in records]


class SharedLayerError(RuntimeError):
    """A layer is used in a way that the fast path does not support; the reference path does."""


def clipped_sum(module, per_example_loss, batch, l2_bound, *, path="fast") -> BoundedSum:
    """Clipped sum of example gradients of one batch (see `ClippedSum`).

    Parameters
    ----------
    module : Module
    per_example_loss : callable or None
        ``per_example_loss(module, *batch)`` -> losses of shape (batch,); None: ``module(*batch)``.
    batch : tuple of tensors
    l2_bound : float
    path : {"fast", "vmap", "loop"}, default="fast"

    Returns
    -------
    BoundedSum of a list of tensors, one for each trainable parameter

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(2, 1, bias=False)
    >>> total = clipped_sum(layer, lambda m, x: m(x)[:, 0], (torch.tensor([[3.0, 4.0], [0.0, 0.5]]),), 1.0)
    >>> total.value[0]
    tensor([[0.6000, 1.3000]])
    """
    return ClippedSum(LossModule(module, per_example_loss), l2_bound, path=path)(*batch)


def _has_trainable(module) -> bool:
    return any(p.requires_grad for p in module.parameters(recurse=False))


def first_leaf(inputs) -> torch.Tensor:
    """Return the first tensor of a tree."""
    return tree_leaves(inputs)[0]


def _has_larger_entry(records, examples, limit):
    """Whether an example has an entry above `limit` in the input or in the output gradient of a layer.

    `examples` (batch,): any tensor with an entry for each. Returns one of bools.
    """
    found = torch.zeros_like(examples, dtype=torch.bool)
    if math.isinf(limit):
        return found
    for x in (x for _, _, *both in records for x in both if x.is_floating_point() and x.numel()):
        low, high = torch.aminmax(x)
        if not max(-float(low), float(high)) <= limit:  # rare: one pass over all examples together is the cheaper
            found |= (x.abs() > limit).reshape(len(found), -1).any(1)
    return found


def _without_units(records, unusable, arranged):
    """Set all rows of the units `unusable` (by code; the last entry is padding) to zero."""
    rows = unusable[arranged.codes[arranged.of_row]]
    return [(n, m, _without(a, rows), _without(g, rows)) for n, m, a, g in records]


def _without(x, rows):
    """Set the rows of the examples `rows` to zero; an example may have several."""
    if x.is_floating_point():
        rows = rows.repeat_interleave(x.shape[0] // rows.shape[0])
        return torch.where(rows.view(-1, *[1] * (x.dim() - 1)), torch.zeros_like(x), x)
    return x


@contextlib.contextmanager
def _plain_float32(device):
    """Compute without autocast and TF32: the clipped norm is a bound only in plain float32 arithmetic."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":  # pragma: no cover
            stack.enter_context(torch_lock)  # flags of the process: another thread would restore them too early
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
            stack.callback(setattr, matmul, "allow_tf32", before)
            matmul.allow_tf32 = False
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=False))
        yield


# ---- the reference: example gradients themselves, slow and right for any module ------------------------------------
def example_gradients_vmap(root, names, inputs):
    """Return the gradient of every example's loss by ``torch.func``.

    `root`: ``root(*inputs)`` gives the losses, shape (batch,). `names`: parameters of the gradients.
    """
    parameters = dict(root.named_parameters())
    fixed = {name: p.detach() for name, p in parameters.items()}
    fixed.update(root.named_buffers())
    moving = {name: fixed.pop(name) for name in names}

    def loss_of_one(moving, example):
        single = tree_map(lambda x: x.unsqueeze(0), example)
        return functional_call(root, {**fixed, **moving}, single).sum()

    gradients = vmap(grad(loss_of_one), in_dims=(None, 0), randomness="different")(moving, inputs)
    return [gradients[name] for name in names]


def example_gradients_loop(root, names, inputs, batch):
    """As `example_gradients_vmap`, with one backward pass for each example: for modules that vmap does not support."""
    named = dict(root.named_parameters())
    parameters = [named[name] for name in names]
    rows = []
    for i in range(batch):
        # a copy, which begins at an aligned address: kernels round a row by where it begins, behind the rows before it
        loss = root(*tree_map(lambda x: x[i : i + 1].clone(), inputs)).sum()  # noqa: B023
        row = torch.autograd.grad(loss, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if r is None else r for p, r in zip(parameters, row)])
    return [torch.stack(column) for column in zip(*rows)]
