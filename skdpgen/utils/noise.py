"""The source of every random draw on which privacy depends: noise, Poisson, group and subset draws."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from .forks import process_identity

NOISE_KINDS: tuple[str, ...] = ("secure", "fast")

_DESCRIPTIONS = {
    "secure": "AES-256 in counter mode keyed by the operating system; Box-Muller on 64-bit uniforms (tail to 9.4 sd)",
    "fast": "PCG64DXSM seeded by the operating system; not cryptographic; Box-Muller on 64-bit uniforms "
    "(tail to 9.4 sd)",
    "seeded": "PCG64DXSM with a known seed: NOT PRIVATE, for tests only",
}
# Pairs of normals made at a time: a few arrays of this length stay in the cache of one core.
_CHUNK = 1 << 14
_TWO_PI = 2 * np.pi

# Both act in one thread only: a private fit in another thread draws its noise as usual.
# Set by `override_noise` alone; a callable of the kind asked for that returns the generator to use instead.
_override = ContextVar("override", default=None)
# Set by `public_noise` alone.
_public = ContextVar("public", default=False)


def make_noise_generator(noise="secure"):
    """Return a fresh generator for one fit.

    `noise`: ``"secure"`` is AES-256 in counter mode under a key from ``os.urandom``; ``"fast"`` is numpy's PCG64DXSM
        seeded by the operating system, whose outputs an adversary with enough of them could predict.
    Raises ValueError if `noise` is neither.
    """
    if noise not in NOISE_KINDS:
        raise ValueError(f"noise must be one of {', '.join(map(repr, NOISE_KINDS))}; got {noise!r}")
    if _public.get():
        return NoiseGenerator("seeded", seed=0)
    override = _override.get()
    return NoiseGenerator(noise) if override is None else override(noise)


@contextmanager
def public_noise():
    """Make the fits of this thread, inside the block, draw fixed bits: those of public rows, which need no noise."""
    token = _public.set(True)
    try:
        yield
    finally:
        _public.reset(token)


@contextmanager
def override_noise(factory):
    """Make `make_noise_generator` return ``factory(noise)`` in this thread, inside the block.

    For `skdpgen.testing.seeded_noise`, for audits on dummy rows and for checks of estimators. A generator that does not
    draw as it states must have ``private = False``: the card of the fit then says so.
    """
    token = _override.set(factory)
    try:
        yield
    finally:
        _override.reset(token)


class NoiseGenerator:
    """Uniform bits and standard normals for one fit; never pickled, copied, or used after a fork.

    Parameters
    ----------
    kind : {"secure", "fast", "seeded"}, default="secure"
        The source of bits; ``"seeded"`` is not private and is for tests.
    seed : int or None, default=None
        For ``"seeded"`` alone.
    chunk : int
        Pairs of normals, and blocks of the cipher, made at a time.

    Attributes
    ----------
    kind : str
    private : bool
        False when the bits could be made again by somebody else.
    description : str
        The source of bits and the method, for the privacy card.
    unit : BoundedUnit or None
        Who the fit protects for which the noise is drawn; None: one row.
    keeps_order : bool
        Whether `permutation` leaves the order as it is: in audits, and in checks of dummy rows, that compare two fits
        draw by draw.

    Notes
    -----
    A copied or forked generator would repeat its noise, and two releases under one noise can be subtracted;
    so copies raise TypeError and a draw in a forked child raises RuntimeError.
    Normals are Box and Muller's, in double precision, from 64-bit uniforms: the largest is sqrt(2 * 64 * log 2) = 9.4.
    """

    keeps_order = False

    def __init__(self, kind="secure", *, seed=None, chunk=_CHUNK):
        if kind not in _DESCRIPTIONS:
            raise ValueError(f"kind must be one of {', '.join(_DESCRIPTIONS)}; got {kind!r}")
        if (seed is not None) != (kind == "seeded"):
            raise ValueError("a seed goes with kind='seeded' and with no other")
        self.kind, self._chunk, self.unit = kind, int(chunk), None
        self._process = process_identity()
        if kind == "secure":
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            self._cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
            self._zeros = bytes(16 * self._chunk)
        else:
            self._bits = np.random.PCG64DXSM(seed)

    @property
    def private(self):
        return self.kind != "seeded"

    @property
    def description(self):
        return _DESCRIPTIONS[self.kind]

    def random_bytes(self, n):
        """Return `n` random bytes as a uint8 array."""
        return self._words(-(-int(n) // 8)).view(np.uint8)[: int(n)]

    def random(self, size=None):
        """Return float64 uniforms on [0, 1), multiples of 2^-53; a float when `size` is None."""
        words = self._words(_count(size))
        return _shaped((words >> np.uint64(11)) * 2.0**-53, size)

    def integers(self, high, size=None):
        """Return int64 uniforms on ``0 .. high - 1`` without bias; an int when `size` is None."""
        high = int(high)
        if not 0 < high <= 2**62:
            raise ValueError(f"high must be between 1 and 2**62; got {high}")
        n = _count(size)
        # Words past the last whole multiple of `high` are drawn again, or small values would come too often.
        last = np.uint64(2**64 - 1 - 2**64 % high)
        words = self._words(n)
        while (rejected := np.flatnonzero(words > last)).size:
            words[rejected] = self._words(rejected.size)
        return _shaped((words % np.uint64(high)).astype(np.int64), size)

    def permutation(self, n):
        """Return 0 .. n - 1 in an order of which all are equally likely; in their order if `keeps_order`.

        The key of the order is as long for every `n`: what is drawn after it does not depend on `n`.
        """
        if self.keeps_order:
            return np.arange(n)
        return np.random.Generator(np.random.PCG64(self.integers(1 << 62, 2).tolist())).permutation(n)

    def standard_normal(self, size=None):
        """Return float64 standard normals; a float when `size` is None."""
        n = _count(size)
        normals = np.empty(n)
        for start in range(0, n, 2 * self._chunk):
            self._fill_normals(normals[start : start + 2 * self._chunk])
        return _shaped(normals, size)

    def _fill_normals(self, out):
        pairs = -(-out.size // 2)
        words = self._words(2 * pairs)
        # (k + 1) 2^-64 is never 0, and the smallest keep all their bits: the tail is that of 64 bits, not of 53.
        radius = words[:pairs].astype(np.float64)
        radius += 1.0
        radius *= 2.0**-64
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle = (words[pairs:] >> np.uint64(11)) * (_TWO_PI * 2.0**-53)
        np.multiply(np.cos(angle), radius, out=out[:pairs])
        rest = out.size - pairs
        np.multiply(np.sin(angle[:rest]), radius[:rest], out=out[pairs:])

    def _words(self, n):
        """Return `n` random 64-bit words in a new array."""
        if process_identity() != self._process:
            raise RuntimeError("a noise generator cannot be used after a fork: parent and child would draw equal noise")
        if self.kind != "secure":
            return self._bits.random_raw(n)
        words = np.empty(n, dtype=np.uint64)
        buffer = memoryview(words).cast("B")
        for start in range(0, 8 * n, len(self._zeros)):
            piece = self._zeros[: 8 * n - start]
            buffer[start : start + len(piece)] = self._cipher.update(piece)
        return words

    def _refuse(self, *_):
        raise TypeError("a noise generator cannot be pickled or copied: two releases would share their noise")

    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = _refuse

    def __repr__(self):
        return f"NoiseGenerator({self.kind!r})"


def _count(size):
    return 1 if size is None else int(np.prod(size, dtype=np.int64))


def _shaped(flat, size):
    return flat[0].item() if size is None else flat.reshape(size)
