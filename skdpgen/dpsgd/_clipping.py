"""The clipped sum of example gradients, at about the cost of an ordinary backward pass.

One forward pass records what goes into each supported layer; one backward pass finds the gradient of the summed
losses by each layer's *output* (no parameter gradients are computed); these give the norm of every example's
gradient (`layers`), hence its clip factor; and one product a layer gives the weighted sum. An example whose gradient
is not finite contributes nothing.
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_leaves, tree_map

from .._types import BoundedSum
from ._layers import RULES, Pool, UnsupportedShapeError
from ._seeding import torch_lock

__all__ = ["ClippedSum", "LossModule", "PartedSum", "clipped_sum"]

# An example's gradients at once on the reference path: at most this many scalars.
_REFERENCE_SCALARS = 2**26
# Rows of one part computed at once, at most.
_MOST_ROWS = 1024


class LossModule(nn.Module):
    """A module and a per-example loss, as one module whose output is the losses, shape (batch,).

    Parameters
    ----------
    module : Module
    per_example_loss : callable or Module, default=None
        ``per_example_loss(module, *inputs)`` -> tensor of shape (batch,); None: ``module(*inputs)`` is that already.
    """

    def __init__(self, module, per_example_loss=None):
        super().__init__()
        self.module = module
        self.per_example_loss = per_example_loss

    def forward(self, *inputs):
        if self.per_example_loss is None:
            return self.module(*inputs)
        return self.per_example_loss(self.module, *inputs)


class ClippedSum:
    """Callable that turns a batch into the clipped sum of its example gradients.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives losses of shape (batch,), each a function of its own example.
    l2_bound : float
        Bound of a contribution, stated on the result.
    clip_norm : float, default=None
        Norm to which gradients are clipped; None means `l2_bound`. Infinite: no clipping.
    path : {"fast", "vmap", "loop"}, default="fast"
        How example gradients are treated; `skdpgen.dpsgd.choose_path` finds out which is right.
    reference_scalars : int
        Scalars of example gradients that "vmap" and "loop" hold at once, about.

    Attributes
    ----------
    names : list of str
        Names of the trainable parameters, in the order of the sums.
    parameters : list of Parameter
    path : str
    """

    def __init__(self, root, l2_bound, *, clip_norm=None, path="fast", reference_scalars=_REFERENCE_SCALARS):
        if path not in ("fast", "vmap", "loop"):
            raise ValueError(f"path must be 'fast', 'vmap' or 'loop'; got {path!r}")
        self.root = root
        self.l2_bound = l2_bound
        self.clip_norm = l2_bound if clip_norm is None else clip_norm
        self.path = path
        self._reference_scalars = reference_scalars
        self.names = [name for name, p in root.named_parameters() if p.requires_grad]
        self.parameters = [p for p in root.parameters() if p.requires_grad]
        self._sums = None
        self._beta = 0
        self._pool = Pool()

    def __call__(self, *inputs, mask=None) -> BoundedSum:
        """Return the clipped sum over one batch.

        Parameters
        ----------
        *inputs : tensors (or trees of tensors) with the batch leading
        mask : bool tensor, shape (batch,), default=None
            False where a row is padding.

        Returns
        -------
        BoundedSum
            Its value is a list of tensors shaped as `parameters`. The buffers are reused by the next call.
        """
        self.reset()
        self.add(*inputs, mask=mask)
        return self.result()

    def reset(self):
        """Forget what was added."""
        if self._sums is None or any(s.device != p.device for s, p in zip(self._sums, self.parameters)):
            self._sums = [torch.empty_like(p, requires_grad=False) for p in self.parameters]
        self._beta = 0  # the first addition overwrites

    def add(self, *inputs, mask=None, shift=None):
        """Add the examples of one physical batch, one contribution each.

        Parameters
        ----------
        *inputs, mask
            As in a call.
        shift : list of tensors, default=None
            Shaped as `parameters`, finite: added to each example's gradient before that is clipped.
        """
        batch = _batch_size(inputs)
        if batch == 0:
            return
        if mask is None:
            mask = torch.ones(batch, dtype=torch.bool, device=self.parameters[0].device)
        with _plain_float32(self.parameters[0].device):
            if self.path == "fast":
                self._add_fast(inputs, mask, shift)
            else:
                self._add_reference(inputs, mask, batch, self.path, shift)

    def result(self) -> BoundedSum:
        """The sum of everything added since `reset`: zero if nothing was (an empty batch is a legal step)."""
        self._wrote(self._sums)
        return BoundedSum(self._sums, l2_bound=self.l2_bound)

    def square_norms(self, *inputs):
        """Squared gradient norm of every example, float64, shape (batch,). Private; for tests and checks."""
        batch = _batch_size(inputs)
        mask = torch.ones(batch, dtype=torch.bool, device=self.parameters[0].device)
        with _plain_float32(self.parameters[0].device):
            if self.path == "fast":
                return sum(rule.square_norms for _, rule in _rules(self._record(inputs, mask), batch, self._pool))
            return sum(self._pool.square_norms(g) for g in self._example_gradients(inputs, batch, self.path))

    def _factors(self, square_norms, mask):
        """Clip factors; zero for padding and for examples without a finite gradient.

        Norms above 2**100 clips are taken for infinite: below 2**-126 a float32 factor would lose its precision.
        """
        usable = mask & torch.isfinite(square_norms)
        if math.isinf(self.clip_norm):
            factors = torch.ones_like(square_norms)
        else:
            factors = (self.clip_norm / square_norms.sqrt()).clamp_(max=1.0)
            usable &= factors >= 2.0**-100
        return torch.where(usable, factors, 0.0).to(self._sums[0].dtype)

    def _record(self, inputs, mask):
        """Run forward and backward; return (name, layer, activation, output gradient) of every supported layer."""
        layers = {m: name for name, m in self.root.named_modules() if type(m) in RULES and _has_trainable(m)}
        seen = []

        def record(layer, args, output):
            if output.requires_grad:
                seen.append((layer, args[0].detach(), args[0]._version, get_gradient_edge(output)))

        # before hooks of the user's own, which may replace the output
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
        return [(layers[layer], layer, a, g) for (layer, a, *_), g in zip(seen, gradients) if g is not None]

    def _add_fast(self, inputs, mask, shift):
        batch = mask.shape[0]
        try:
            records = self._record(inputs, mask)
            rules = _rules(records, batch, self._pool)
        except (SharedLayerError, UnsupportedShapeError):
            # Only if the module's course depends on its input, unseen by `choose_path`: the same sum, found slowly.
            self._add_reference(inputs, mask, batch, "loop", shift)
            return
        square_norms = sum((rule.square_norms for _, rule in rules), torch.zeros_like(mask, dtype=torch.float64))
        if shift is not None:
            square_norms += 2 * self._inner_products(records, shift, batch) + square_norm(shift)
            square_norms.clamp_(min=0.0)
        factors = self._factors(square_norms, mask)
        unusable = ~torch.isfinite(square_norms)
        if bool(unusable.any()):
            # 0 * nan is nan: the rows themselves must go. The same records: a second pass would drop out other units.
            records = [(n, m, _without(a, unusable), _without(g, unusable)) for n, m, a, g in records]
            rules = _rules(records, batch, self._pool)
        sums = dict(zip(self.names, self._sums))
        for name, rule in rules:
            own = {p: sums.pop(f"{name}.{p}", None) for p in ("weight", "bias")}
            rule.weighted_sum(factors, {p: total for p, total in own.items() if total is not None}, self._beta)
        self._wrote(sums.values())
        if shift is not None:
            for total, moved in zip(self._sums, shift):
                total.add_(moved, alpha=float(factors.sum()))

    def _inner_products(self, records, direction, batch):
        """``<gradient, direction>`` of every example, float64.

        A layer's output is linear in its parameters: it is the product of the gradient by the output with what the
        layer makes of its input at `direction`.
        """
        parts = dict(zip(self.names, direction))
        found = torch.zeros(batch, dtype=torch.float64, device=direction[0].device)
        for name, layer, activation, gradient in records:
            turned = copy.copy(layer)  # called without the user's hooks, which may replace the output
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
        """After the first addition, sums that nothing wrote to are zero."""
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
            factors = self._factors(sum(self._pool.square_norms(g) for g in gradients), mask[i:j])
            for total, gradient in zip(self._sums, gradients):
                rows = torch.where((factors > 0).unsqueeze(1), gradient.flatten(1), 0.0)
                total.view(-1).addmv_(rows.t(), factors, beta=self._beta)
            self._beta = 1


class PartedSum(ClippedSum):
    """`ClippedSum` of a network of models, each of which sees the records of its own part alone.

    Parameters
    ----------
    root : Module
        ``root.module`` is the network: ``part_of(X)`` gives the part of each row, and within ``only(part)`` the losses
        are those of one model.
    plan : PartedPlan
    path : {"fast", "vmap", "loop"}, default="fast"

    Notes
    -----
    The same sum as `ClippedSum` finds when all models see all records, in a fraction of the time. Rows of a part
    are computed in batches of one shape, padded with zeros.
    """

    def __init__(self, root, plan, *, path="fast"):
        super().__init__(root, plan.l2_bound, clip_norm=plan.clip_norm, path=path)
        self._rows = [min(_MOST_ROWS, math.ceil(size + 2 * math.sqrt(size))) for size in plan.part_batch_sizes]

    def add(self, *inputs, mask=None):
        """Add the records of one physical batch, each to the block of its part."""
        network, X = self.root.module, inputs[0]
        if mask is None:
            mask = torch.ones(len(X), dtype=torch.bool, device=X.device)
        parts = network.part_of(X)
        for part, size in enumerate(self._rows):
            of_part = torch.nonzero(mask & (parts == part)).flatten()
            with network.only(part):
                for rows in of_part.split(size):
                    if len(rows):
                        taken = tree_map(lambda x: _padded(x, rows, size), inputs)  # noqa: B023
                        super().add(*taken, mask=torch.arange(size, device=X.device) < len(rows))


def _padded(x, rows, size):
    out = x.new_zeros((size, *x.shape[1:]))
    out[: len(rows)] = x[rows]
    return out


def square_norm(vector) -> float:
    """Squared norm of a list of tensors, accumulated in float64."""
    return float(sum(part.double().square().sum() for part in vector))


def _rules(records, batch, pool):
    return [(name, RULES[type(layer)](layer, a, g, batch, pool)) for name, layer, a, g in records]


class SharedLayerError(RuntimeError):
    """A layer is used in a way that the fast path cannot see through; the reference path can."""


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


def _batch_size(inputs) -> int:
    return tree_leaves(inputs)[0].shape[0]


def _without(x, rows):
    """Zero an example's rows, of which there may be several."""
    if x.is_floating_point():
        rows = rows.repeat_interleave(x.shape[0] // rows.shape[0])
        return torch.where(rows.view(-1, *[1] * (x.dim() - 1)), torch.zeros_like(x), x)
    return x


@contextlib.contextmanager
def _plain_float32(device):
    """No autocast and no TF32: norms are bounds only as far as the arithmetic is what it says."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":  # pragma: no cover
            stack.enter_context(torch_lock)  # flags of the process: another thread would give them back too early
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
            stack.callback(setattr, matmul, "allow_tf32", before)
            matmul.allow_tf32 = False
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=False))
        yield


def _one(tree, i):
    return tree_map(lambda x: x[i : i + 1], tree)


def example_gradients_vmap(root, names, inputs):
    """Gradients of every example's loss by ``torch.func``.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives the losses, shape (batch,).
    names : list of str
        The parameters to differentiate by.
    inputs : tuple of tensors (or trees of tensors) with the batch leading

    Returns
    -------
    list of tensor, each (batch, *parameter shape)
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
    """As `example_gradients_vmap`, one backward pass an example: for modules that vmap cannot take."""
    named = dict(root.named_parameters())
    parameters = [named[name] for name in names]
    rows = []
    for i in range(batch):
        loss = root(*_one(inputs, i)).sum()
        row = torch.autograd.grad(loss, parameters, allow_unused=True)
        rows.append([torch.zeros_like(p) if r is None else r for p, r in zip(parameters, row)])
    return [torch.stack(column) for column in zip(*rows)]
