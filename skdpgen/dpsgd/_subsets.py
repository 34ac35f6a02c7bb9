"""DP-SGD whose unit is a subset of the records: the plan, the subset of each record, and the subsets of each step.

A record changes the contribution of the one subset that it is in. The clipped mean gradient of that subset may be any
vector of a ball of radius C before and after.
"""

from __future__ import annotations

import hashlib
import math
import numbers
from dataclasses import dataclass, field

import numpy as np

from .._types import BoundedUnit
from ..accounting import Phase, gaussian_event, non_private_event, subset_gaussian_event
from ..utils.validation import convert_fields
from ._loader import poisson_batches
from ._plan import ChargedPlan, PlanUse, slack_of_sums

SAMPLERS = ("poisson", "one_of_k", "balanced")
ENCODER_UPDATES = ("stateless", "frozen", "round_robin", "on_query")


# ---- which subset a record is in ----------------------------------------------------------------------------------
def assign_subsets(n_records, n_subsets, rng, *, units=None):
    """Draw the subset of each record, or of each unit with all its rows, independently of all others.

    `n_records`, `n_subsets`: the number of subsets is public and never follows from the number of records.
    `units` (n_records,): unit of each row, where a unit has several: all its rows are in one subset. None: each row is
        one unit.
    Returns an array of shape (n_records,): a record that joins or leaves moves no other one, which an equal split of
        shuffled records would do.
    """
    if units is None:
        return rng.integers(n_subsets, n_records)
    found, codes = np.unique(units, return_inverse=True)
    if codes.shape != (n_records,):
        raise ValueError(f"units must have one entry for each of {n_records} rows; got shape {np.shape(units)}")
    return rng.integers(n_subsets, len(found))[codes]


def hash_subsets(ids, n_subsets, rng):
    """Put each record into the subset of its id, by a hash under a secret key.

    `ids` (n_records,): text or whole numbers, unique for each record, that say nothing about the record and are no row
        numbers.
    `rng`: source of the key.
    Returns an array of shape (n_records,).
    Raises ValueError for ids that are missing, repeated, neither text nor whole numbers, or numbers of rows.

    For `add_or_remove_one` alone. A record that replaces another may have another id, so that one subset loses a record
    and another gains one: two subsets change, and a step is charged for one.
    """
    coded = check_ids(ids)
    key = bytes(rng.random_bytes(32))
    digests = (hashlib.blake2b(code, digest_size=8, key=key).digest() for code in coded)
    return np.fromiter((int.from_bytes(digest, "little") % n_subsets for digest in digests), np.int64, len(coded))


def check_ids(ids):
    """Return ids as bytes; ValueError for ids that do not identify records."""
    values = np.asarray(ids, dtype=object).ravel().tolist()
    coded = []
    for value in values:
        if isinstance(value, str):
            coded.append(b"s" + value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value and value % 1 == 0:
            coded.append(b"i%d" % int(value))
        else:
            raise ValueError("ids must be text or whole numbers, and none may be missing")
    n = len(coded)
    if len(set(coded)) < n:
        raise ValueError("ids must be unique: the unit of privacy is one row, and rows of one id are not one unit")
    for first in (0, 1):
        if n > 2 and coded == [b"i%d" % i for i in range(first, first + n)]:
            raise ValueError(
                "the ids are row numbers: when a record joins or leaves, the numbers of other records change, and so "
                "do their subsets; leave the ids out (each record then draws its subset)"
            )
    return coded


# ---- draws by key --------------------------------------------------------------------------------------------------
class KeyedStream:
    """Uniforms and normals that are a function of (purpose, unit, step) and of one secret key alone.

    What an encoder does at a step must not depend on how often its subset was drawn before, nor on the subsets drawn
    beside it; with a stream that is consumed draw by draw it would. No release takes its noise from this stream.

    `key`: 16 bytes from the fit's noise generator.
    """

    def __init__(self, key):
        self._key = tuple(int(part) for part in np.frombuffer(key, dtype=np.uint64))

    def uniform(self, purpose, units, step, n):
        """Return float64 in (0, 1), shape (len(units), n)."""
        with np.errstate(over="ignore"):
            at = _mix(np.asarray(units, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self._key[0]))
            at = _mix(at + np.uint64(step) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(self._key[1]))
            at = _mix(at + np.uint64(purpose) * np.uint64(0x165667B19E3779F9))
            counter = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            words = _mix(at[:, None] + counter)
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def normal(self, purpose, units, step, n):
        """Return float32 standard normals, shape (len(units), n)."""
        half = -(-n // 2)
        drawn = self.uniform(purpose, units, step, 2 * half).astype(np.float32)
        radius = np.sqrt(-2 * np.log(np.maximum(drawn[:, :half], np.float32(1e-30))))
        angle = np.float32(2 * np.pi) * drawn[:, half:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :n]


def _mix(x):
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014): every bit of the result depends on every bit of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


# ---- the plan -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SubsetPlan(ChargedPlan):
    """Plan of the decoder's training in DP2-VAE, fixed before its first step.

    Each step draws subsets, clips the mean gradient of each to `gradient_bound`, and releases their sum with Gaussian
    noise, divided by `per_step`. A plan is charged, and then followed once (see `ChargedPlan`).

    Parameters
    ----------
    n_subsets : int
        K; public.
    steps : int
        T; public. A step that draws nothing is a step too.
    noise_multiplier : float
        Standard deviation of the noise on the sum over `l2_bound`; 0 is the non-private reference, without clipping.
    per_step : int, default=1
        m: expected number of subsets in a step ("poisson"), or their number.
    gradient_bound : float, default=1.0
        C: norm of the mean gradient of a subset after clipping.
    sampler : {"poisson", "one_of_k", "balanced"}, default="poisson"
        Draw each subset with probability m / K, or exactly one, or follow a public schedule that visits every subset in
        turn.
    encoder_update : {"stateless", "frozen", "round_robin", "on_query"}, default="stateless"
        What may change an encoder after stage 1. With "on_query", the paper's choice, an encoder learns whenever its
        subset is drawn. Later gradients then depend on the hidden draws, and steps do not compose with amplification:
        the plan is accounted as if the draws were public.
    unit : BoundedUnit, default=None
        What a record is, where it is not a row: all rows of a person, for example, which are in one subset.

    Attributes
    ----------
    l2_bound : float
        Multiple of the noise: C for Poisson draws, whose dominating pair holds both ends of a contribution, else 2 C.

    Raises
    ------
    ValueError
        For numbers out of range and combinations for which no sound cost is known.

    Examples
    --------
    >>> SubsetPlan(2500, 10_000, 0.375).mechanism
    'poisson_subsets'
    >>> SubsetPlan(2500, 10_000, 1.0, sampler="balanced").visits
    4
    """

    n_subsets: int
    steps: int
    noise_multiplier: float
    per_step: int = 1
    gradient_bound: float = 1.0
    sampler: str = "poisson"
    encoder_update: str = "stateless"
    unit: BoundedUnit | None = field(default=None, kw_only=True)
    _use: PlanUse = field(default_factory=PlanUse, init=False, repr=False, compare=False)

    def __post_init__(self):
        convert_fields(self)
        for name in ("n_subsets", "steps", "per_step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1; got {value!r}")
        if self.sampler not in SAMPLERS:
            raise ValueError(f"sampler must be one of {', '.join(map(repr, SAMPLERS))}; got {self.sampler!r}")
        if self.encoder_update not in ENCODER_UPDATES:
            names = ", ".join(map(repr, ENCODER_UPDATES))
            raise ValueError(f"encoder_update must be one of {names}; got {self.encoder_update!r}")
        if not isinstance(self.unit, BoundedUnit | None):
            raise ValueError(f"unit must be a BoundedUnit or None; got {type(self.unit).__name__}")
        if self.per_step > self.n_subsets:
            raise ValueError(
                f"per_step={self.per_step} subsets a step (subsets_per_step) are more than n_subsets={self.n_subsets}"
            )
        if self.sampler == "one_of_k" and self.per_step != 1:
            raise ValueError(
                f'sampler="one_of_k" draws exactly one subset a step, not {self.per_step}: no sound cost is known here '
                'for several drawn without replacement; sampler="poisson" draws about that many, for less noise'
            )
        if not (0 <= self.noise_multiplier < math.inf):
            raise ValueError(f"noise_multiplier must be finite and not negative; got {self.noise_multiplier!r}")
        if not (0 < self.gradient_bound < math.inf):
            raise ValueError(f"gradient_bound must be positive and finite; got {self.gradient_bound!r}")

    @property
    def sampling_rate(self):
        """Probability that a given subset is drawn at a step."""
        return self.per_step / self.n_subsets

    @property
    def visits(self):
        """Steps at which a given subset takes part under the "balanced" schedule, at most."""
        return math.ceil(self.steps * self.per_step / self.n_subsets)

    @property
    def mechanism(self):
        """Kind of the event: see `skdpgen.accounting.subset_gaussian_event`; "gaussian" for a public schedule."""
        if self.sampler == "balanced":
            return "gaussian"
        if self.encoder_update == "on_query":
            return "index_revealed"
        return "one_of_k" if self.sampler == "one_of_k" else "poisson_subsets"

    @property
    def l2_bound(self):
        """Multiple of the noise; see the class."""
        return self.gradient_bound if self.mechanism == "poisson_subsets" else 2 * self.gradient_bound

    @property
    def slack(self):
        """Relative distance between the clip and `gradient_bound`, for sums that are rounded (see `slack_of_sums`)."""
        return slack_of_sums(self.per_step, self.noise_multiplier)

    @property
    def clip_norm(self):
        """Norm to which mean gradients are clipped; infinite without noise."""
        return self.gradient_bound / (1 + self.slack) if self.private else math.inf

    def phase(self, label, share):
        """Return the phase of the plan in a joint calibration."""
        signal = self.per_step * self.gradient_bound / self.l2_bound  # a step adds up clipped means, not rows
        if self.mechanism == "gaussian":
            return Phase(label, share, steps=self.visits, signal=signal)
        return Phase(label, share, self.steps, self.sampling_rate, self.mechanism, signal)

    @property
    def event(self):
        """Privacy event of all steps, composed."""
        if not self.private:
            return non_private_event()
        if self.mechanism == "gaussian":
            return gaussian_event(self.noise_multiplier, self.visits)
        return subset_gaussian_event(self.mechanism, self.sampling_rate, self.noise_multiplier, self.steps)


def subset_draws(plan, rng):
    """Yield the subsets of each step of a plan.

    `rng`: source of the draws, which are hidden; unused by "balanced". Yields int64 array, possibly empty:
    ``plan.steps`` of them.
    """
    if plan.sampler == "poisson":
        yield from poisson_batches(plan.n_subsets, plan.sampling_rate, plan.steps, rng)
        return
    for step in range(plan.steps):
        if plan.sampler == "one_of_k":
            yield rng.integers(plan.n_subsets, 1)
        else:
            yield (step * plan.per_step + np.arange(plan.per_step)) % plan.n_subsets
