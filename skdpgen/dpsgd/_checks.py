"""Checks before a charge, without the values of the data: whether a module can be trained, and by which path."""

from __future__ import annotations

import inspect

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from ._clipping import ClippedSum
from ._layers import RULES
from ._seeding import generator_states, torch_seeded

# Of the proof of `slack_of_sums`: each may be rounded by a step of the lattice.
_MOST_PARAMETERS = 2**30
# Dummy examples: one record, another one beside it, and a third whose presence changes the batch size.
_EXAMPLES = 3
# Draws of dropout that are compared: a single one may drop the units that mix records.
_DRAWS = 4
_MIXED = "the loss of one record depends on the others of its batch, so its gradient cannot be bounded"
_RANDOM = "the loss is random: declare noise_shape on the module and take the noise as an argument"


def check_module(module: nn.Module):
    """Refuse modules whose output for one record depends on others of the batch, or that store what they compute.

    Raises
    ------
    ValueError
        For BatchNorm in all its forms, layers with running statistics, `max_norm` and `scale_grad_by_freq`
        embeddings, lazy modules, parameters that are not float32 or float64, no trainable parameter at all, and more
        than 2**30 of them.
    """
    check_layers(module)
    trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("the module has no trainable parameter")
    for name, p in trainable:
        if p.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"parameter {name} is {p.dtype}; gradients are clipped in float32 or float64 alone")
    if sum(p.numel() for _, p in trainable) > _MOST_PARAMETERS:
        raise ValueError(
            f"the module has more than {_MOST_PARAMETERS} trainable parameters: rounding of their gradients is not "
            "bounded"
        )


def check_layers(module: nn.Module):
    """Refuse layers that mix the records of a batch, or store statistics of them (see `check_module`)."""
    for name, layer in module.named_modules():
        where = f"{type(layer).__name__} ({name or 'the module itself'})"
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"{where} mixes the records of a batch, so no record's gradient can be bounded; "
                "use GroupNorm or LayerNorm"
            )
        if getattr(layer, "track_running_stats", False):
            raise ValueError(f"{where} stores running statistics of private records; set track_running_stats=False")
        if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
            raise ValueError(f"{where} takes its shape from data; give the shape")
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and (
            layer.max_norm is not None or layer.scale_grad_by_freq
        ):
            raise ValueError(f"{where} mixes the records of a batch; set max_norm=None and scale_grad_by_freq=False")


def check_optimizer(optimizer):
    """Refuse optimisers that evaluate the loss themselves, such as LBFGS: each evaluation would be a release.

    Parameters
    ----------
    optimizer : class or instance of torch.optim.Optimizer

    Raises
    ------
    ValueError
    """
    cls = optimizer if isinstance(optimizer, type) else type(optimizer)
    name = getattr(cls, "__name__", str(cls))
    step = getattr(cls, "step", None)
    closure = inspect.signature(step).parameters.get("closure") if step is not None else None
    if issubclass(cls, torch.optim.LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
        raise ValueError(f"{name} evaluates the loss several times a step, each of which would have to be charged")


def choose_path(root: nn.Module, like, *, dummy=None) -> tuple[str, str]:
    """Find the fastest path that is correct for this module, on dummy examples.

    The fast path is chosen when every trainable parameter belongs to one layer of a supported type, and the norms and
    sums that it finds for dummy examples equal those of single examples.

    Parameters
    ----------
    root : Module
        ``root(*inputs)`` gives the losses, shape (batch,).
    like : tuple of tensors (or trees of tensors)
        Only shapes (after the first dimension), dtypes and devices are read, never values.
    dummy : tuple of tensors (or trees of tensors), default=None
        Three dummy examples in place of random ones, for modules that do not accept every input.

    Returns
    -------
    path : {"fast", "vmap", "loop"}
    reason : str
        Why the fast path was not chosen; empty if it was.

    Raises
    ------
    ValueError
        If the loss of one example depends on others or is random beyond the draws of dropout, or if the module changes
        its buffers while it trains.
    """
    check_module(root)
    inputs = tree_map(_dummy_values, like) if dummy is None else dummy
    state = {name: b.clone() for name, b in root.named_buffers()}
    training = {m: m.training for m in root.modules()}
    # one seed for the whole check, while other threads wait: the result is the same each time
    with torch_seeded(0, _devices(inputs)):
        try:
            root.train()
            with torch.no_grad():
                root(*inputs)
            if any(not torch.equal(b, state[name]) for name, b in root.named_buffers()):
                raise ValueError(
                    "the module changes its buffers when it computes: they would hold private values after the training"
                )
            _check_independence(root, inputs, random=True)
            root.eval()
            _check_independence(root, inputs, random=False)
            return _find_path(root, inputs)
        finally:
            for name, b in root.named_buffers():
                b.copy_(state[name])
            for m, mode in training.items():
                m.training = mode


def _dummy_values(x):
    # a separate, seeded generator: the check is the same on every data set and draws from no generator of the caller
    if x.is_floating_point():
        values = torch.rand((_EXAMPLES, *x.shape[1:]), generator=torch.Generator().manual_seed(x.dim()))
        return values.to(device=x.device, dtype=x.dtype)
    return torch.zeros((_EXAMPLES, *x.shape[1:]), dtype=x.dtype, device=x.device)


def _close(a, b):
    return torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-6, equal_nan=True)


def _devices(inputs):
    return {x.device for x in tree_leaves(inputs)}


def _losses(root, inputs, rows, seed):
    """Losses of dummy records with the draws of one seed, and whether anything was drawn."""
    devices = _devices(inputs)
    with torch_seeded(seed, devices):
        before = generator_states(devices)
        losses = root(*tree_map(lambda x: x[rows], inputs))
        drew = not all(map(torch.equal, before, generator_states(devices)))
    return losses, drew


def _check_independence(root, inputs, random):
    """Compare the losses of records in one batch with their losses alone, or, under dropout, beside other records.

    In training mode dropout draws other masks for one record alone, but the same masks for batches of one size and
    seed. The state of the generators shows whether it draws: rare dropout may drop no unit in one pass.
    """
    everyone = list(range(_EXAMPLES))
    with torch.no_grad():
        together, drew = _losses(root, inputs, everyone, 0)
        if together.shape != (_EXAMPLES,):
            raise ValueError(
                f"the loss must have one entry for each record: shape ({_EXAMPLES},) for {_EXAMPLES} records, "
                f"not {tuple(together.shape)}"
            )
        if not _close(_losses(root, inputs, everyone, 0)[0], together):
            raise ValueError(_RANDOM)
        if drew:
            others = [_losses(root, inputs, everyone, seed)[0] for seed in range(1, _DRAWS)]
            if not random and any(not torch.equal(x.nan_to_num(), together.nan_to_num()) for x in others):
                raise ValueError(_RANDOM)
            _check_beside_others(root, inputs)
            return
        alone = torch.cat([_losses(root, inputs, [i], 0)[0] for i in everyone])
    if not _close(together, alone):
        raise ValueError(_MIXED)


def _check_beside_others(root, inputs):
    """Compare the losses of each record beside different records, with the same draws."""
    everyone = range(_EXAMPLES)
    for seed in range(_DRAWS):
        together, _ = _losses(root, inputs, list(everyone), seed)
        for i in everyone:
            for other in set(everyone) - {i}:
                beside, _ = _losses(root, inputs, [k if k == i else other for k in everyone], seed)
                if not _close(beside[i], together[i]):
                    raise ValueError(_MIXED)


def _find_path(root, inputs):
    loop = ClippedSum(root, 1.0, path="loop")
    norms = loop.square_norms(*inputs)
    sums = [s.clone() for s in loop(*inputs).value]
    reason = _structure(root)
    paths = ["vmap"] if reason else ["fast", "vmap"]
    for path in paths:
        candidate = ClippedSum(root, 1.0, path=path)
        try:
            equal = _close(candidate.square_norms(*inputs), norms)
            equal = equal and all(_close(a, b) for a, b in zip(candidate(*inputs).value, sums))
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            reason = reason or f"{path}: {type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        if equal:
            return path, "" if path == "fast" else reason
        reason = reason or f"{path}: gradients differ from those of single examples"
    return "loop", reason


def _structure(root) -> str:
    """Return why the fast path does not apply, or an empty string."""
    owners = {}
    for name, layer in root.named_modules():
        own = {key: p for key, p in layer.named_parameters(recurse=False) if p.requires_grad}
        if not own:
            continue
        if type(layer) not in RULES:
            return f"{type(layer).__name__} ({name}) has parameters and no rule"
        if not set(own) <= {"weight", "bias"} or getattr(layer, "sparse", False):
            return f"{type(layer).__name__} ({name}) is reparametrised or sparse"
        for p in own.values():
            if id(p) in owners:
                return f"a parameter is shared by {owners[id(p)]} and {name}"
            owners[id(p)] = name
    return ""
