"""Callbacks and checkpoints: what happens to released parameters and gradients during a training, at no charge.

A checkpoint is a function of released gradients and of public values, so it may be published as the parameters may. It
holds no losses, no batches, no buffers of modules and no state of a random generator.
"""

from __future__ import annotations

import copy
import math
import os

import safetensors.torch
import torch
from skorch.callbacks import Callback

from ..accounting._receipt import CheckpointHeader, header_text, read_header, read_whole
from ..dpsgd._seeding import torch_seeded
from ..utils.atomic import write_atomically

_PARAMETERS, _OPTIMIZER, _AVERAGES = "parameters.", "optimizer.", "averages."


def _trainable(net):
    return [p for _, p in net.get_all_learnable_params() if p.requires_grad]


class ParameterAverage(Callback):
    """Exponential moving average of the parameters, which replaces them when training ends.

    The parameters of each step are a release, so their average is post-processing. It removes much of the noise.

    Parameters
    ----------
    decay : float in [0, 1), default=0.999
        Weight of earlier steps; smaller in the first steps, ``(1 + t) / (10 + t)``.
    """

    def __init__(self, decay=0.999):
        self.decay = decay

    def on_train_begin(self, net, **kwargs):
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1); got {self.decay!r}")
        self.average_ = [p.detach().clone() for p in _trainable(net)]
        self.step_ = torch.zeros((), dtype=torch.int64)  # a tensor, as what a checkpoint of a fit restores

    @torch.no_grad()
    def on_batch_end(self, net, training=True, **kwargs):
        self.step_ += 1
        step = int(self.step_)
        decay = min(self.decay, (1 + step) / (10 + step))
        for average, p in zip(self.average_, _trainable(net)):
            average.lerp_(p, 1 - decay)

    @torch.no_grad()
    def on_train_end(self, net, **kwargs):
        for p, average in zip(_trainable(net), self.average_):
            p.copy_(average)


class StepCheckpoint(Callback):
    """Store the parameters of every `every`-th step: a fixed schedule, which depends on no private value.

    Parameters
    ----------
    every : int, default=100
        Number of steps between two stored states.

    Attributes
    ----------
    checkpoints_ : dict of int to state dict
        Step -> parameters of the module, on the CPU.
    """

    def __init__(self, every=100):
        self.every = every

    def on_train_begin(self, net, **kwargs):
        self.checkpoints_ = {}

    def on_batch_end(self, net, step=None, training=True, **kwargs):
        if step is not None and step % self.every == 0:
            state = net.module_.state_dict()
            self.checkpoints_[step] = {name: value.detach().cpu().clone() for name, value in state.items()}


class ScaledParts(Callback):
    """Multiply the released gradients of each part, so that each is a mean over its records: post-processing.

    Parameters
    ----------
    scales : sequence of float
        Expected number of records in a step over that of the part: public or released.
    """

    def __init__(self, scales):
        self.scales = scales

    def on_grad_computed(self, net, **kwargs):
        for part, scale in zip(net.module_.parts, self.scales):
            for p in part.parameters():
                if p.requires_grad:
                    p.grad.mul_(scale)


def check_checkpoint(path, plan):
    """Refuse a training that cannot be resumed, or whose file belongs to another training, before any step is used.

    `path`: None for a training without a checkpoint. `plan`: a plan that was charged. Returns the
    header of the file, where the file exists.
    """
    use = plan._use
    if path is None:
        if use.from_ledger:
            raise RuntimeError("the training under this plan has a checkpoint: give checkpoint= to continue it")
        return None
    if not str(path).endswith(".safetensors"):
        raise ValueError(f"checkpoint= must end in .safetensors; got {str(path)!r}")
    if not plan.private:
        raise ValueError("checkpoint= is for plans with noise: a plan without noise has no charge to resume from")
    if use.record is None:
        raise ValueError(
            "checkpoint= needs a plan that was charged to a ledger file, alone and as a whole: charge it by "
            "PrivacyAccountant(..., ledger=path).charge(plan, label)"
        )
    if not use.from_ledger and use.steps:
        raise RuntimeError(
            "the training under this plan began without a checkpoint: leave out checkpoint= to continue it"
        )
    if not os.path.lexists(path):
        if use.before and not use.granted:
            raise FileNotFoundError(2, "No such file, from which to resume the training", str(path))
        return None
    header = read_header(path)
    if (header.ledger, header.record) != use.record.identity:
        raise RuntimeError(f"{path} is the checkpoint of another training; it is not overwritten: give another path")
    if not use.from_ledger and header.steps:
        raise RuntimeError(f"{path} is the checkpoint of a training that has begun: resume it by accountant.resume")
    return header


class Checkpoint:
    """The checkpoint of one training: takes steps from the ledger in blocks, and writes the file after each block.

    `net`: initialised, with the plan and the path.
    `loads`: whether the training continues from the file. Otherwise it begins, or this net has taken its steps.
    Raises ValueError, RuntimeError, OSError: as `check_checkpoint`; for a file that does not fit the net, an optimiser
        whose state cannot be written, a path that cannot be written to. No step has been used then.
    """

    def __init__(self, net, *, loads):
        self._net = net
        header = check_checkpoint(net.checkpoint, net.plan)
        if loads:
            load_checkpoint(net, net.checkpoint)
        else:
            _pack(net, _trial_state(net))  # raises now the errors that writing the file would raise later
        if header is None or not (net.plan._use.from_ledger or loads):
            self.write()
        else:
            self._written = header.steps

    def may_step(self) -> bool:
        """Whether a step may be taken, from a new block if the last one is used; False once all were taken."""
        net = self._net
        if not net.plan.steps_granted:
            if net.steps_taken_ != self._written:
                self.write()
            if net.steps_taken_ < net.plan.steps:
                net.plan.take_block()
                net.steps_taken_ = net.plan.steps_taken
        return net.plan.steps_granted > 0

    def write(self):
        """Replace the file; RuntimeError if another training has written its checkpoint to the path."""
        net = self._net
        check_checkpoint(net.checkpoint, net.plan)
        tensors, numbers = _pack(net, net.optimizer_.state_dict()["state"])
        header = CheckpointHeader(*net.plan._use.record.identity, net.plan.numbers, net.steps_taken_, numbers)
        write_atomically(net.checkpoint, safetensors.torch.save(tensors, metadata={"skdpgen": header_text(header)}))
        self._written = net.steps_taken_


def load_checkpoint(net, path) -> CheckpointHeader:
    """Load parameters and the state of the optimiser into a net; ValueError, and no change, if they do not fit it."""
    header, content = read_whole(path)
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        raise ValueError(f"{path}: not a checkpoint of skdpgen") from None
    _install(net, path, tensors, header.optimizer)
    return header


def _install(net, path, tensors, found):
    """Set parameters, the state of the optimiser and averages of a net; ValueError, and no change, if one is unfit.

    `found` are the numbers in the state of the optimiser, by parameter and name.
    """
    wanted, numbers = _pack(net, _trial_state(net))
    if not found and not any(name.startswith(_OPTIMIZER) for name in tensors):  # before the first step
        wanted = {name: value for name, value in wanted.items() if name.startswith(_PARAMETERS)}
        numbers = {}
    averages = _averages(net) if any(name.startswith(_AVERAGES) for name in tensors) else {}
    wanted.update(averages)
    for name in wanted.keys() | tensors.keys():
        if name not in wanted or name not in tensors:
            raise ValueError(
                f"{path}: does not fit the net: {name} is {'missing' if name in wanted else 'not part of it'}"
            )
        one, other = tensors[name], wanted[name]
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise ValueError(f"{path}: does not fit the net: {name} has another shape or dtype")
        if not torch.isfinite(one).all():
            raise ValueError(f"{path}: {name} holds NaN or infinity")
    if _kinds(found) != _kinds(numbers):
        raise ValueError(f"{path}: does not fit the net: it has the state of another optimiser")
    with torch.no_grad():
        for name, p in _parameters(net).items():
            p.copy_(tensors[_PARAMETERS + name])
        for name, average in averages.items():
            average.copy_(tensors[name])
    state = {int(index): dict(part) for index, part in found.items()}
    for name, value in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, _, key = name.removeprefix(_OPTIMIZER).partition(".")
            state.setdefault(int(index), {})[key] = value
    # settings of the optimiser, for example the learning rate, remain those of the net: a schedule starts again
    net.optimizer_.load_state_dict({**net.optimizer_.state_dict(), "state": state})


class FitBlocks:
    """The training of a net in a fit with a checkpoint: as `Checkpoint`, with the file of the whole fit.

    The averages of `ParameterAverage` are in the file too. Other callbacks start again.

    `net`: initialised, with the plan; its callbacks have begun.
    `file`: checkpoint of the fit. ``training`` is None or (tensors, numbers of the optimiser); ``write(plan, tensors,
        numbers, steps, noise)`` takes the next block of steps from the ledger, or ends the fit, and replaces the file.
    """

    def __init__(self, net, file):
        self._net, self._file, self._ended = net, file, False
        if file.training is None:
            _pack(net, _trial_state(net))  # raises now the errors that writing the file would raise later
        else:
            _install(net, file.path, *file.training)

    def may_step(self) -> bool:
        """Whether a step may be taken, from a new block if the last one is used; False once all were taken."""
        net = self._net
        if not (net.plan.steps_granted or self._ended):
            tensors, numbers = _pack(net, net.optimizer_.state_dict()["state"])
            tensors.update({name: _copied(average) for name, average in _averages(net).items()})
            self._ended = net.steps_taken_ >= net.plan.steps
            noise = (net.noise_description_, net.noise_private_)
            self._file.write(net.plan, tensors, numbers, net.steps_taken_, noise)
            net.steps_taken_ = net.plan.steps_taken
        return net.plan.steps_granted > 0


def _averages(net):
    """The state of averages of parameters, by name: tensors that the callbacks themselves use."""
    found = {}
    for name, callback in net.callbacks_:
        if isinstance(callback, ParameterAverage):
            parts = {str(k): average for k, average in enumerate(callback.average_)}
            found.update({f"{_AVERAGES}{name}.{k}": part for k, part in {**parts, "step": callback.step_}.items()})
    return found


def _parameters(net):
    """Trainable parameters by names that begin with the module's; a shared parameter has its first name."""
    named = {}
    for part in (*net._modules, *net._criteria):
        module = getattr(net, part + "_")
        if isinstance(module, torch.nn.Module):
            named.update({f"{part}.{name}": p for name, p in module.named_parameters() if p.requires_grad})
    first = {id(p): name for name, p in reversed(named.items())}
    return {name: p for name, p in named.items() if first[id(p)] == name}


def _pack(net, state):
    """Return the tensors of the file by name, and the numbers in the optimiser's state by parameter and name."""
    if list(net._optimizers) != ["optimizer"]:
        raise ValueError("checkpoint= is for nets with one optimiser")
    tensors = {_PARAMETERS + name: _copied(p) for name, p in _parameters(net).items()}
    numbers = {}
    for index, part in state.items():
        for name, value in part.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{_OPTIMIZER}{index}.{name}"] = _copied(value)
            elif value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
                numbers.setdefault(str(index), {})[name] = value
            else:
                raise ValueError(
                    f"checkpoint= writes numbers and tensors; the state of {type(net.optimizer_).__name__} has "
                    f"{name!r}, of type {type(value).__name__}: use another optimiser"
                )
    return tensors, numbers


def _copied(value):
    return value.detach().cpu().clone(memory_format=torch.contiguous_format)


def _trial_state(net):
    """Return the state of the optimiser after a step, taken by a copy on gradients of zeros."""
    with torch_seeded(0, net.device):  # an optimiser that draws must not change the generators
        optimizer = copy.deepcopy(net.optimizer_)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p) if p.requires_grad else None
        optimizer.step()
    return optimizer.state_dict()["state"]


def _kinds(numbers):
    return {index: {name: type(value) for name, value in part.items()} for index, part in numbers.items()}
