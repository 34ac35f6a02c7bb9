"""The one subclass of skorch's NeuralNet; its training step is the privacy boundary of all trained networks."""

from __future__ import annotations

import contextlib
import copy

import torch
from skorch import NeuralNet
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from ..dpsgd import DPSGDPlan, GradientNoise, PoissonLoader, check_optimizer, choose_path
from ..dpsgd._seeding import SecretGenerators, check_generators, torch_lock, torch_seeded
from ..dpsgd._units import unit_codes
from ..utils.noise import make_noise_generator
from ..utils.progress import progress_bar, shows_bars
from ._callbacks import Checkpoint, FitBlocks, check_checkpoint, load_checkpoint
from ._parameters import check_net

# Parameters of skorch that would contradict the plan, and the reasons.
_REFUSED = {
    "batch_size": "batches are drawn by Poisson sampling: their expected size follows from the plan's sampling_rate",
    "max_epochs": "the number of steps is the plan's, which is what was charged",
    "train_split": "a loss on held-out records is private and was not charged",
    "compile": "gradients of single records are found through hooks, which a compiled module does not call",
    "iterator_train__batch_size": "batches are drawn by Poisson sampling at the plan's sampling_rate",
}
_OTHER_LOADER = "iterator_train must be PoissonLoader: the cost of the plan holds for its batches alone"


class PerExampleLoss(nn.Module):
    """Criterion of a module whose output is the losses, shape (batch,)."""

    def forward(self, y_pred, y_true=None):
        return y_pred


class DPNet(NeuralNet):
    """Train a torch module by DP-SGD, following a plan that has been charged.

    Every step draws its records by Poisson sampling, clips the gradient of each record, adds Gaussian noise to the sum
    and divides by the expected batch size. The optimiser gets nothing else, so optimisers, learning-rate schedules,
    averages and checkpoints are post-processing.

    Parameters
    ----------
    module : Module class or instance
        Network to train. If it has an attribute ``noise_shape`` (a tuple), its ``forward(X, noise)`` gets standard
        normals of shape ``(batch, *noise_shape)`` for reparameterised samples, drawn from the private generator. For a
        plan with terms of groups of records (`TermwisePlan`), ``group_losses(X, members, [noise], [y],
        [group_noise])`` gives the loss of each group: X has the shape ``(n_groups, length, ...)``, `members` is 1.0
        for records and 0.0 for padding, and `group_noise` has the shape ``(n_groups, *group_noise_shape)``.
    plan : DPSGDPlan, default=None
        Plan of the training, charged before it starts: ``accountant.charge(plan, label)``. A plan is for one training:
        another training needs a new plan, even with equal numbers, and another charge. A plan with `unit` protects all
        rows of a person together: ``fit(X, y, groups=ids)``.
    criterion : Module class, default=PerExampleLoss
        Gives one loss for each record. Criteria with a `reduction` are made with ``reduction="none"``; entries beyond
        the first dimension are averaged.
    checkpoint : str or path, default=None
        File, ending in .safetensors, from which an interrupted training continues. It holds only values that are
        released. It needs a plan that was charged to a ledger file, alone. Steps are then taken from the ledger in
        blocks of about 2 %, and after each block the trainable parameters and the optimiser's state are written. After
        an interruption, ``accountant.resume(plan, checkpoint)`` and a net with the same checkpoint continue. Buffers
        and frozen parameters are not in the file, and callbacks start again.
    noise : {"secure", "fast"}, default="secure"
        Source of samples and noise; see `GradientNoise` for the bits.
    optimizer : Optimizer class, default=torch.optim.Adam
    lr : float, default=1e-3
    random_state : int, default=None
        Seed of the initial parameters, never of the noise. None: torch's generator.
    progress_text : str, default=""
        Text beside the progress bar: for example the epsilon that was charged.
    verbose : int, default=1
        0: silent; 1: a progress bar of steps on a terminal or in a notebook; 2: everywhere. The loss is private and
        never shown.
    callbacks, device, iterator_train, dataset, predict_nonlinearity, warm_start, **kwargs
        As in skorch (``module__``, ``optimizer__``, ...). Callbacks get None for X, y, batch and data sets, and neither
        losses nor outputs. ``batch_size``, ``max_epochs``, ``train_split`` and ``compile`` are refused.

    Attributes
    ----------
    module_, optimizer_, criterion_, history
        As in skorch; the history holds epochs and steps (public), no losses and no batch sizes.
    steps_taken_ : int
        Steps taken of the current plan.
    path_ : {"fast", "vmap", "loop"}
        How gradients of single records are found (see `skdpgen.dpsgd.choose_path`), with `path_reason_`; for groups of
        records `group_path_` and `group_path_reason_`.
    noise_description_ : str
        Source of the noise, for the privacy card.
    noise_private_ : bool
        Whether the noise was secret, for the privacy card.

    Notes
    -----
    An epoch, for callbacks, is ``round(1 / sampling_rate)`` steps. Dropout draws from torch's generators, which have a
    secret state during the passes of a training, and that of the process between them, for example in callbacks.
    Trainings in several threads take turns, step by step, and their draws do not depend on each other. What a module
    stores of a batch beside its parameters (a last activation, for example) does not outlive the training: copies are
    trained, which share the parameters. `score`, `predict` and `forward` on private records give private values.
    """

    batch_size = 1024  # of predictions
    max_epochs = None
    train_split = None
    compile = False
    blocks_ = None  # of a training with a checkpoint, while it runs
    fit_file = None  # checkpoint of the fit that the training is a part of; see `FitBlocks`

    def __init__(
        self,
        module,
        *,
        plan=None,
        criterion=PerExampleLoss,
        checkpoint=None,
        noise="secure",
        optimizer=torch.optim.Adam,
        lr=1e-3,
        random_state=None,
        progress_text="",
        iterator_train=PoissonLoader,
        verbose=1,
        **kwargs,
    ):
        _refuse(kwargs)
        super().__init__(
            module, criterion, optimizer=optimizer, lr=lr, iterator_train=iterator_train, verbose=verbose, **kwargs
        )
        for name in ("batch_size", "max_epochs", "train_split", "compile"):
            del self.__dict__[name]  # these are no parameters of DPNet: the class attributes are used
        self.plan = plan
        self.checkpoint = checkpoint
        self.noise = noise
        self.random_state = random_state
        self.progress_text = progress_text

    def set_params(self, **kwargs):
        """Set parameters; those that would contradict the plan raise ValueError."""
        _refuse(kwargs)
        with torch_lock:  # skorch may make the module again
            return super().set_params(**kwargs)

    @property
    def _default_callbacks(self):
        return []  # skorch's default callbacks print and record losses

    def initialize(self):
        """Make module, criterion and optimiser; seeded by `random_state`, without a change to torch's generators."""
        if not hasattr(self, "steps_taken_"):  # a net that is made again does not regain its steps
            self.steps_taken_, self.used_plan_ = 0, None
        # without a seed, too, no thread may draw parameters from the state that another thread installed
        seeded = torch_lock if self.random_state is None else torch_seeded(self.random_state, self.device)
        with seeded:
            return super().initialize()

    def initialize_criterion(self):
        """As skorch, with ``reduction="none"`` wherever there is a choice."""
        super().initialize_criterion()
        for name in self._criteria:
            criterion = getattr(self, name + "_")
            if isinstance(getattr(criterion, "reduction", None), str):
                criterion.reduction = "none"
        return self

    def initialize_optimizer(self, *args, **kwargs):
        """As skorch, refusing optimisers that evaluate the loss themselves (LBFGS)."""
        check_optimizer(self.optimizer)
        try:
            return super().initialize_optimizer(*args, **kwargs)
        except (TypeError, ValueError) as error:  # torch names no parameter of the net
            name = getattr(self.optimizer, "__name__", self.optimizer)
            raise ValueError(f"the optimizer {name} refuses its parameters (lr=, optimizer__...): {error}") from error

    def get_loss(self, y_pred, y_true, X=None, training=False):
        """Return the losses of single records, shape (batch,)."""
        losses = self.criterion_(y_pred, y_true)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses

    def check(self, X, y=None, *, groups=False):
        """Refuse a net that cannot be trained privately; call this before the charge.

        Parameters
        ----------
        X, y : as in `fit`
            Only shapes and dtypes are used.
        groups : bool, default=False
            Whether the plan will have terms of groups of records.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For BatchNorm, losses that mix records, LBFGS, modules that cannot be copied, and the other cases of
            `skdpgen.dpsgd.choose_path`.
        """
        if not self.initialized_:
            self.initialize()
        check_optimizer(self.optimizer_)
        check_generators()
        plan = DPSGDPlan(1.0, 1, 1.0, 0.0, 1.0, max_physical_batch=3)
        with self._working_copies():
            loader = self._loader(X, y, plan, make_noise_generator(self.noise))
            self._choose_path(NetLoss(self), loader)
            if groups:
                self._choose_group_path(loader)
        return self

    def fit(self, X, y=None, *, groups=None, **fit_params):
        """Make the net again and train it for all steps of the plan. See `partial_fit`."""
        self._check_plan()
        units = self._units(groups)
        if self.plan is getattr(self, "used_plan_", None):
            if self.plan.private:
                raise RuntimeError("the plan was used by an earlier fit: set a new plan and charge it")
            self.used_plan_ = None  # without noise there is nothing to count
        if not self.warm_start or not self.initialized_:
            self.initialize()
        return self._follow_plan(X, y, units, **fit_params)

    def partial_fit(self, X, y=None, classes=None, *, groups=None, **fit_params):
        """Train the net from its current parameters for the remaining steps of the plan.

        Parameters
        ----------
        X : array, tensor, or tree of them
        y : array or tensor, default=None
        classes : None
            Unused.
        groups : array-like of shape (n_rows,), default=None
            Unit of each row, numbers or text, for a plan with `unit`: each unit is sampled with all its rows, and its
            gradient is clipped once.

        Returns
        -------
        self

        Raises
        ------
        RuntimeError
            If the plan was not charged in this process, all its steps have been taken, or another net, for example a
            clone of this one, has used it.
        ValueError
            Where `groups` is given without a unit of the plan, or the plan has a unit and `groups` is missing.

        Notes
        -----
        **Privacy.** One row is one unit, or, for a plan with `unit`, all rows of one entry of `groups`: however many
        they are, because at most ``unit.max_rows`` of them are used, and their sum is clipped. The steps cost what was
        charged for ``plan``: nothing is charged here.
        """
        self._check_plan()
        return self._follow_plan(X, y, self._units(groups), **fit_params)

    def _follow_plan(self, X, y, units, **fit_params):
        if not self.initialized_:
            self.initialize()
        if self.plan is not self.used_plan_:
            self.steps_taken_, self.plan_token_ = self.plan.steps_resumed, object()
        if self.steps_taken_ >= self.plan.steps and self.fit_file is None:
            raise RuntimeError(f"all {self.plan.steps} steps of the plan have been taken; more were not charged")
        # unlike in skorch, a keyboard interrupt ends the fit with an error: half a training is not a fit
        self.notify("on_train_begin")
        self.fit_loop(X, y, units=units, **fit_params)
        self.notify("on_train_end")
        if self.checkpoint is not None:
            Checkpoint(self, loads=False).write()  # the parameters as callbacks left them
        return self

    def load_checkpoint(self, path):
        """Load the parameters of a checkpoint and the state of its optimiser into the net: nothing is charged.

        Parameters
        ----------
        path : str or path
            File of a net that was made like this one. No code in it is executed.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a file that is no checkpoint, does not fit the net, or holds NaN or infinity; the net does not change.
        """
        if not self.initialized_:
            self.initialize()
        load_checkpoint(self, path)
        return self

    def fit_loop(self, X, y=None, epochs=None, *, units=None, **fit_params):
        """Run the remaining steps of the plan; `units` are the numbers of the units of the rows."""
        if epochs is not None or fit_params:
            raise ValueError("epochs follow from the plan, and forward takes nothing but X and noise: leave them out")
        self.check_training_readiness()
        check_optimizer(self.optimizer_)
        with self._working_copies():
            self._run_steps(X, y, units)
        return self

    def _units(self, groups):
        """Return the number of the unit of each row, or None where a row is the unit."""
        if (groups is None) != (self.plan.unit is None):
            raise ValueError(
                "groups= says which rows are one unit, for a plan that was charged for units, and this one was charged "
                "for rows: give the plan unit=BoundedUnit(...)"
                if self.plan.unit is None
                else f"the plan was charged for units ({self.plan.unit.name}): fit needs groups=, the unit of each row"
            )
        return None if groups is None else unit_codes(groups)

    @contextlib.contextmanager
    def _working_copies(self):
        """Replace modules and criteria by copies, which share the trainable parameters and nothing else, for a block.

        Modules may store private values, for example a last activation. These are in the copies, which do not outlive
        the block.
        """
        names = [f"{name}_" for name in (*self._modules, *self._criteria)]
        own = {name: part for name in names if isinstance(part := getattr(self, name), nn.Module)}
        shared = {id(p): p for part in own.values() for p in part.parameters() if p.requires_grad}
        for layer in {layer for part in own.values() for layer in part.modules()}:
            # an activation of an earlier pass: torch cannot copy a tensor that depends on others
            left = (t for t in tree_leaves(vars(layer)) if isinstance(t, torch.Tensor) and not t.is_leaf)
            shared.update((id(t), t.detach()) for t in left)
        try:
            copies = copy.deepcopy(own, shared)
        except Exception as error:
            raise ValueError(f"copy.deepcopy cannot copy the module or the criterion: {error}") from error
        vars(self).update(copies)
        try:
            yield
        finally:
            vars(self).update(own)

    def _run_steps(self, X, y, units):
        plan, rng = self.plan, make_noise_generator(self.noise)
        loader = self._loader(X, y, plan, rng, units)
        root = NetLoss(self)
        self._choose_path(root, loader)
        if plan.needs_groups:
            self._choose_group_path(loader)
        check_generators()
        resumed = plan.steps_resumed > 0 and plan is not self.used_plan_
        checkpoint = None if self.checkpoint is None else Checkpoint(self, loads=resumed)
        if self.fit_file is not None:
            checkpoint = FitBlocks(self, self.fit_file)
        plan.claim(self.plan_token_)
        self.used_plan_ = plan
        left = plan.steps - self.steps_taken_
        clipper = plan.make_aggregate(root, rng, path=self.path_, **self._groups(plan))
        with contextlib.ExitStack() as stack:
            noise = GradientNoise.like(clipper.parameters, plan.noise_multiplier, rng, steps=left)
            stack.enter_context(noise)
            self.noise_description_, self.noise_private_ = noise.description, noise.private
            # the draws of dropout are secret, and their distribution does not depend on the batch
            draws = SecretGenerators(rng, {p.device for p in clipper.parameters})
            self.engine_, self.blocks_ = (clipper, noise, draws), checkpoint
            stack.callback(self.__dict__.pop, "engine_")
            stack.callback(self.__dict__.pop, "blocks_", None)
            bar = stack.enter_context(self._bar(left))
            steps = iter(loader)
            while self._may_step():
                self.notify("on_epoch_begin")
                self.run_single_epoch(steps, training=True, prefix="train", step_fn=self.train_step, bar=bar)
                self.notify("on_epoch_end")

    def run_single_epoch(self, iterator, training, prefix, step_fn, bar=None):
        """Run the steps of one epoch, and record nothing but their number."""
        if iterator is None:
            return
        count = 0
        while count < self.plan.steps_per_epoch and self._may_step():
            batch = next(iterator)
            self.notify("on_batch_begin", training=training, step=self.steps_taken_)
            step_fn(batch)
            count += 1
            self.notify("on_batch_end", training=training, step=self.steps_taken_)
            if bar is not None:
                bar.update()
        self.history.record(prefix + "_batch_count", count)

    def _may_step(self):
        """Whether a step of the plan remains; with a checkpoint, one of those taken from the ledger."""
        return self.steps_taken_ < self.plan.steps if self.blocks_ is None else self.blocks_.may_step()

    def train_step(self, batch, **fit_params):
        """Take one step of the plan; refuse more steps than planned."""
        if self.steps_taken_ >= self.plan.steps:
            raise RuntimeError(f"all {self.plan.steps} steps of the plan have been taken; more were not charged")
        self.plan.take_step()
        self.steps_taken_ += 1
        step = self.train_step_single(batch)
        self.notify(
            "on_grad_computed",
            named_parameters=list(self.get_all_learnable_params()),
            training=True,
            step=self.steps_taken_,
        )
        with torch_lock:  # an optimiser that draws must not draw from the secret state of a fit in another thread
            self._step_optimizer(None)
        return step

    def train_step_single(self, batch, **fit_params):
        """Release one gradient: clipped sum -> noise -> ``p.grad``. The loss is reported as nan: it is private."""
        clipper, noise, draws = self.engine_
        self._set_training(True)
        with draws.in_place():
            clipper.reset()
            for chunk in batch:
                clipper.add(*chunk_inputs(chunk), mask=chunk.mask, units=chunk.units)
            total = clipper.result()
        for p in clipper.parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)  # zeros, so that an interrupted step leaves no other values
        gradients = [p.grad for p in clipper.parameters]
        noise.release(total, divisor=self.plan.expected_batch_size, out=gradients)
        return {"loss": torch.tensor(torch.nan), "y_pred": None}

    def notify(self, method_name, **cb_kwargs):
        """Call callbacks without private arguments: they get the net, the step and noisy gradients."""
        if method_name != "on_grad_computed":
            cb_kwargs.pop("named_parameters", None)
        kept = {key: value for key, value in cb_kwargs.items() if key in ("training", "step", "named_parameters")}
        kept.update(dict.fromkeys(_private_arguments(method_name)))
        super().notify(method_name, **kept)

    def get_iterator(self, dataset, training=False):
        """Return skorch's iterator for predictions; training uses another one (see `fit_loop`)."""
        if training:
            raise RuntimeError("the plan alone draws records for training: call fit or partial_fit")
        return super().get_iterator(dataset, training=False)

    def _loader(self, X, y, plan, rng, units=None):
        loader = self.iterator_train
        if not (isinstance(loader, type) and issubclass(loader, PoissonLoader)):
            raise ValueError(_OTHER_LOADER)
        dtypes = [p.dtype for _, p in self.get_all_learnable_params() if p.is_floating_point()]
        options = {
            "noise_shape": getattr(self.module_, "noise_shape", None),
            "device": self.device or "cpu",
            "dtype": dtypes[0] if dtypes else torch.float32,
            **self.get_params_for("iterator_train"),
            "units": units,
        }
        return loader(self.get_dataset(X, y), plan=plan, rng=rng, **options)

    def _choose_path(self, root, loader):
        self.path_, self.path_reason_ = choose_path(root, chunk_inputs(loader.example()))

    def _choose_group_path(self, loader):
        """As `_choose_path`, on dummy groups."""
        if not hasattr(self.module_, "group_losses"):
            raise ValueError("the plan has terms of groups of records: the module must have group_losses")
        least = getattr(getattr(self.module_, "divergence", None), "min_group_size", 2)
        noise_shape = getattr(self.module_, "group_noise_shape", None)
        inputs = dummy_groups(loader.example(), noise_shape, max(2, int(least)))
        self.group_path_, self.group_path_reason_ = choose_path(NetGroupLoss(self), None, dummy=inputs)

    def _groups(self, plan):
        """Return the further arguments of a plan with terms of groups."""
        if not plan.needs_groups:
            return {}
        return {
            "group_root": NetGroupLoss(self),
            "group_path": self.group_path_,
            "group_noise_shape": getattr(self.module_, "group_noise_shape", None),
        }

    def _check_plan(self):
        if not isinstance(self.plan, DPSGDPlan):
            raise ValueError(f"training needs plan=DPSGDPlan(...); got {type(self.plan).__name__}")
        self.plan.check_charged()
        if self.fit_file is None:  # the fit has checked its own
            check_checkpoint(self.checkpoint, self.plan)

    def _bar(self, steps):
        shown = {0: False, 1: "auto"}.get(int(self.verbose), True)
        return progress_bar(total=steps, phase=f"DP-SGD {self.progress_text}".strip(), shown=shows_bars(shown))


def check_template(net, *criteria):
    """Raise ValueError for a net that an estimator cannot train, or whose criterion is of no class of `criteria`."""
    if not isinstance(net, DPNet | None):
        raise ValueError(f"net must be a DPNet; got {type(net).__name__}")
    if net is None:
        return
    if net.checkpoint is not None:
        raise ValueError("net must have checkpoint=None: that of a fit is a parameter of the synthesizer")
    if net.iterator_train is not PoissonLoader:
        raise ValueError(_OTHER_LOADER)
    check_net(net, (PerExampleLoss, *criteria), PoissonLoader)


def _refuse(parameters):
    for name, reason in _REFUSED.items():
        if name in parameters:
            raise ValueError(f"{name} is not a parameter of DPNet: {reason}")


def _private_arguments(method_name):
    """Return the names of arguments that callbacks get as None."""
    if method_name.startswith("on_train"):
        return ("X", "y")
    if method_name.startswith("on_epoch"):
        return ("dataset_train", "dataset_valid")
    return ("batch",)


# ---- a net as a function from rows to losses -------------------------------------------------------------------------
class NetLoss(nn.Module):
    """A net's modules and criteria as one module from (X, extras) to losses of shape (batch,)."""

    def __init__(self, net):
        super().__init__()
        for name in net._modules + net._criteria:
            part = getattr(net, name + "_")
            if isinstance(part, nn.Module):
                self.add_module(name, part)
        self._net = [net]  # a list, so that torch does not register its parameters

    def forward(self, X, extras):
        net = self._net[0]
        noise = {} if "noise" not in extras else {"noise": extras["noise"]}
        return net.get_loss(net.infer(X, **noise), extras.get("y"), X=X, training=True)


class NetGroupLoss(NetLoss):
    """The same modules, from the rows of groups to the losses of the groups, shape (n_groups,)."""

    def forward(self, X, extras, groups):
        known = {"noise": extras.get("noise"), "y": extras.get("y"), "group_noise": groups.get("noise")}
        given = {name: value for name, value in known.items() if value is not None}
        return self._net[0].module_.group_losses(X, groups["members"], **given)


def chunk_inputs(chunk):
    """Return the arguments of `NetLoss`, without absent entries."""
    return chunk.X, {key: x for key, x in (("y", chunk.y), ("noise", chunk.noise)) if x is not None}


def dummy_groups(chunk, group_noise_shape, least=2):
    """Return three dummy groups of `least` records and of one and two more, as arguments of `NetGroupLoss`.

    Only the shapes of `chunk` are used.
    """
    generator, length = torch.Generator().manual_seed(0), least + 2

    def dummy(x):
        values = torch.rand((3, length, *x.shape[1:]), generator=generator)
        return values.to(x.device, x.dtype) if x.is_floating_point() else x.new_zeros((3, length, *x.shape[1:]))

    inputs = tree_map(dummy, chunk_inputs(chunk))
    rows = inputs[0] if isinstance(inputs[0], torch.Tensor) else chunk.mask.float()
    like = rows if rows.is_floating_point() else rows.float()
    groups = {
        "members": (torch.arange(length) < torch.tensor([[length], [least], [least + 1]])).to(like.device, like.dtype)
    }
    if group_noise_shape is not None:
        groups["noise"] = torch.randn((3, *group_noise_shape), generator=generator).to(like.device, like.dtype)
    return (*inputs, groups)
