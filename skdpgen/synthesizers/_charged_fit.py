"""What the releases of a fit need, once it is charged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..accounting import FitPlan
from ..mechanisms import add_gaussian


@dataclass(frozen=True, eq=False)
class ChargedFit:
    """What the releases of a fit need, once it is charged."""

    plan: FitPlan  # as it was charged
    rng: object  # NoiseGenerator; the noise of all releases
    neighboring: object  # str or UnitRelation; the relation that the noise of the releases follows
    receipt: object  # Receipt; covers the plans of DP-SGD
    # for what needs no privacy: initialisation of EM, synthetic rows. It may follow `random_state`.
    stream: np.random.Generator
    checkpoint: object | None = None  # FitCheckpoint, where the fit is written, and from which it goes on

    @property
    def noise(self):
        """Noise multiplier of each release, by its label; of a fit that goes on, of the training alone."""
        noise = self.plan.noise_multipliers
        if self.checkpoint is None or not self.checkpoint.resumed:
            return noise
        return {phase.label: noise[phase.label] for phase in self.plan.phases if phase.sampling_rate is not None}

    @property
    def progress_text(self):
        """What a progress bar says of the training."""
        return f"epsilon {self.plan.epsilon:.3g}"

    @property
    def starts_training(self):
        """Whether the training begins, rather than goes on from the checkpoint."""
        return self.checkpoint is None or self.checkpoint.training is None

    def facts(self, release, state, restore):
        """Make the releases before the training; a fit that goes on has them from its checkpoint.

        Arguments as in `FitCheckpoint.facts`; a fit without a checkpoint calls `release` alone.
        """
        return release() if self.checkpoint is None else self.checkpoint.facts(release, state, restore)

    def cover(self, plan):
        """Let the training follow a plan, from its beginning or from the checkpoint on."""
        plan = self.receipt.cover(plan)
        if self.checkpoint is not None:
            self.checkpoint.follow(plan)
        return plan

    def row_count(self, n_rows, released):
        """Number of rows: the exact one where it is public, else a released one."""
        return float(n_rows) if self.neighboring == "replace_one" else float(released)

    def step_size(self, row_count, counted):
        """Released number of what a step of DP-SGD samples: rows, or units where each of them counts 1.

        `row_count`: public or released number of rows. `counted`: released sum of the weights of the rows: the number
        of units where each of them counts 1.
        """
        unit = self.plan.unit
        return float(counted if unit is not None and unit.weighting == "units" else row_count)

    def sample_size(self, rows, released):
        """Number of rows to sample, as `row_count`; where units count 1, a separate release (`row_count`)."""
        noise = self.plan.noise_multipliers
        if "row_count" not in noise:
            return self.row_count(len(rows), released)
        return once(
            self.checkpoint,
            "row_count",
            lambda: max(float(add_gaussian(rows.kept_rows(), noise["row_count"], self.rng, self.neighboring)[0]), 1.0),
        )

    def noise_of_rows(self, label):
        """Noise of a release relative to what one row adds: a unit may add several."""
        unit = self.plan.unit
        return self.noise[label] * (1 if unit is None else unit.weight)


def once(checkpoint, name, make):
    """Make a number of a fit by units; a fit that goes on has it from its checkpoint (see `FitCheckpoint.once`)."""
    return make() if checkpoint is None else checkpoint.once(name, make)
