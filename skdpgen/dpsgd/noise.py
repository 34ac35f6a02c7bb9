"""Gaussian noise for gradient sums, drawn ahead of the steps in a second thread."""

from __future__ import annotations

import math
import os
import queue
import threading
from functools import partial

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .._types import BoundedSum
from ..utils.watching import tell_release, watched

__all__ = ["GradientNoise"]

# Normals of one piece of work, of which a few arrays fit in a core's cache. Half a piece of the secure method is no
# more than torch takes on in one thread: threads of its own would fight the training for the cores.
_PIECE = {"secure": 2**16, "fast": 2**17}
# Entries of a sum brought to the lattice at once: the scratch array stays in the cache.
_SUM_PIECE = 2**17
# Steps of noise kept ready. One would make the training wait for the thread after each step.
_AHEAD = 2


class GradientNoise:
    """The one place of DP-SGD where noise is added: ``sum + N(0, (noise_multiplier * l2_bound)**2 I)``.

    Parameters
    ----------
    shapes : sequence of torch.Size
        Shapes of the tensors of the sums.
    noise_multiplier : float
        Standard deviation over the bound of one contribution; 0 adds nothing.
    rng : NoiseGenerator
        Gives the key; kind ``"secure"`` or ``"fast"`` chooses the method below, anything else is ``"secure"``'s.
    steps : int, default=None
        Draw no more than this many times; None: as often as asked.
    device, dtype : of the sums

    Notes
    -----
    Bits are AES-256's in counter mode in both methods, under a key of 256 bits drawn from `rng`.

    - secure: pairs of 64-bit uniforms, Box-Muller in float64 (the largest normal is sqrt(2 * 64 * log 2) = 9.4 sd:
      beyond it lies 5e-21 of the law). Noise and sum are rounded to whole multiples of 2**-30 standard deviations of
      the noise and added exactly, so that no low-order bit of the sum shows in the result.
    - fast: one 64-bit word a pair, 31 bits of radius, 39 in its tail (largest normal 7.4 sd, 1e-13 of the law
      beyond), and 32 of angle, Box-Muller in float32, no lattice: low-order bits of the released gradients are not
      protected.

    Memory: the noise of two steps and a half. The thread ends with `close`, or with the object as a context manager.
    """

    def __init__(self, shapes, noise_multiplier, rng, *, steps=None, device="cpu", dtype=torch.float32):
        self.noise_multiplier = float(noise_multiplier)
        self.lattice = rng.kind != "fast"
        self.device, self.dtype = torch.device(device), dtype
        self._shapes = [torch.Size(shape) for shape in shapes]
        self._ends = np.cumsum([shape.numel() for shape in self._shapes]).tolist()
        self._left = math.inf if steps is None else int(steps)
        self._pid = os.getpid()
        self._thread = None
        self._key = bytes(rng.random_bytes(32))
        self.private = rng.private

    @property
    def description(self) -> str:
        """Bits and method, for the privacy card."""
        if not self.private:
            return "AES-256-CTR with a known seed: NOT PRIVATE, for tests only"
        if self.lattice:
            return "AES-256-CTR; Box-Muller in float64 on 64-bit uniforms (tail to 9.4 sd), lattice 2^-30 sd"
        return "AES-256-CTR; Box-Muller in float32 on 31-bit uniforms, 39-bit in the tail (to 7.4 sd), no lattice"

    def release(self, bounded: BoundedSum, divisor: float = 1.0, out=None) -> list[torch.Tensor]:
        """Return ``(bounded.value + noise) / divisor``: from here on everything is post-processing.

        Parameters
        ----------
        bounded : BoundedSum
            Its value is a list of tensors; the standard deviation is ``noise_multiplier * bounded.l2_bound``.
        divisor : float, default=1.0
            A public constant, the expected batch size; it and the bound are the same in all calls.
        out : list of tensor, default=None
            Where to write.

        Raises
        ------
        TypeError
            If `bounded` is not a BoundedSum: noise is scaled by a bound, never by hand.
        RuntimeError
            After a fork, or when more draws than `steps` are asked for.
        """
        if not isinstance(bounded, BoundedSum):
            raise TypeError(f"noise is added to a BoundedSum alone; got {type(bounded).__name__}")
        if out is None:
            out = [torch.empty_like(v) for v in bounded.value]
        if self.noise_multiplier == 0:
            for target, value in zip(out, bounded.value):
                torch.div(value, divisor, out=target)
            return out
        std = self.noise_multiplier * bounded.l2_bound
        drawn = self._draw(std / divisor)
        start = 0
        for target, value, end in zip(out, bounded.value, self._ends):
            noise, value, target = drawn[start:end].to(self.device), value.reshape(-1), target.view(-1)
            if self.lattice:
                _add_on_lattice(value, noise, std, divisor, target)
            else:
                torch.add(noise, value, alpha=1.0 / divisor, out=target)
            start = end
        self._spare.put(drawn)
        if watched():
            whole = torch.cat([part.detach().reshape(-1).double().cpu() for part in out])
            tell_release((whole * divisor).numpy(), std, "gradient")
        return out

    def _draw(self, scale):
        """Return what `_fill_secure` or `_fill_fast` made, the latter with standard deviation `scale`."""
        if os.getpid() != self._pid:
            raise RuntimeError("noise cannot be drawn after a fork: parent and child would draw equal noise")
        if self._left <= 0:
            raise RuntimeError("more noise was asked for than the steps of the plan")
        self._left -= 1
        if self._thread is None:
            self._start(scale)
        if scale != self._scale:
            raise ValueError("the bound or the divisor changed: noise of the first release's scale is drawn already")
        drawn = self._ready.get()
        if isinstance(drawn, BaseException):
            raise RuntimeError("drawing noise failed") from drawn
        return drawn

    def _start(self, scale):
        self._scale = scale
        self._ready, self._spare, self._stop = queue.Queue(), queue.Queue(), threading.Event()
        size = self._ends[-1] if self._ends else 0
        dtype = torch.float64 if self.lattice else torch.float32
        for _ in range(min(_AHEAD, self._left + 1)):
            buffer = torch.empty(size, dtype=dtype, pin_memory=self.device.type == "cuda")
            self._spare.put(buffer)
        stream = _Stream(self._key, _PIECE["secure" if self.lattice else "fast"])
        fill = _fill_secure if self.lattice else partial(_fill_fast, scale=scale)
        args = (fill, stream, self._left + 1, self._ready, self._spare, self._stop)
        self._key = None
        self._thread = threading.Thread(target=_work, args=args, name="skdpgen-noise", daemon=True)
        self._thread.start()

    def close(self):
        """End the thread and drop noise that was not used."""
        if self._thread is not None:
            self._stop.set()
            self._spare.put(None)
            self._thread.join()
        self._left = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce_ex__(self, protocol):
        raise TypeError("noise cannot be pickled or copied: two releases would share it")


def _work(fill, stream, draws, ready, spare, stop):
    """Body of the drawing thread."""
    try:
        while draws > 0:
            buffer = spare.get()
            if buffer is None:
                return
            for start in range(0, buffer.numel(), stream.piece):
                if stop.is_set():
                    return
                fill(stream, buffer[start : start + stream.piece])
            ready.put(buffer)
            draws -= 1
    except BaseException as error:
        ready.put(error)


class _Stream:
    """AES-256 in counter mode, and the scratch arrays of one piece."""

    def __init__(self, key, piece):
        self.piece = piece
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._zeros = bytes(8 * piece)
        self._bytes = bytearray(8 * piece + 15)
        self._words = np.frombuffer(self._bytes, dtype=np.int64, count=piece)
        self.double = [np.empty(piece // 2) for _ in range(2)]
        self.single = [np.empty(piece // 2, dtype=np.float32) for _ in range(2)]

    def draw(self, words):
        """Return that many 64-bit words, valid until the next call."""
        self._cipher.update_into(memoryview(self._zeros)[: 8 * words], self._bytes)
        return self._words[:words]


def _fill_secure(stream, out):
    """Fill with float64 standard normals that are multiples of 2**-30: adding them on the lattice is exact."""
    pairs = -(-out.numel() // 2)
    words = stream.draw(2 * pairs)
    radius, angle = (scratch[:pairs] for scratch in stream.double)
    # |k| over 63 bits, half a step away from zero: never 0, and the smallest is 2**-64
    np.bitwise_and(words[:pairs], 2**63 - 1, out=words[:pairs])
    np.copyto(radius, words[:pairs])
    radius += 0.5
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    np.copyto(angle, words[pairs:])
    angle *= math.pi * 2.0**-63
    radius *= 2.0**30
    # torch's float64 cosine and sine are vectorised, numpy's are not
    radius, angle = torch.from_numpy(radius), torch.from_numpy(angle)
    rest = out.numel() - pairs
    torch.cos(angle, out=out[:pairs]).mul_(radius)
    torch.sin(angle[:rest], out=out[pairs:]).mul_(radius[:rest])
    np.rint(out.numpy(), out=out.numpy())  # torch would round a piece of this length in several threads


def _fill_fast(stream, out, scale):
    """Fill with float32 normals of standard deviation `scale`: 31 bits of radius, 39 in its tail, and 32 of angle."""
    pairs = -(-out.numel() // 2)
    words = stream.draw(pairs).view(np.int32)
    turn, height = words[:pairs], words[pairs:]
    radius, angle = (scratch[:pairs] for scratch in stream.single)
    np.bitwise_and(height, 2**31 - 1, out=height)
    np.copyto(radius, height, casting="same_kind")
    radius += 0.5
    # Where it shows, the lowest bits of the angle, which the angle has no use for, are bits below the radius's.
    rare = np.flatnonzero(height < 2**8)
    radius[rare] = height[rare] + ((turn[rare] & 255) + 0.5) / 256
    radius *= 2.0**-31
    np.log(radius, out=radius)
    radius *= -2.0 * scale**2
    np.sqrt(radius, out=radius)
    np.copyto(angle, turn, casting="same_kind")
    angle *= math.pi * 2.0**-31
    out = out.numpy()
    rest = out.size - pairs
    np.cos(angle, out=out[:pairs])
    np.sin(angle[:rest], out=out[pairs:])
    out[:pairs] *= radius
    out[pairs:] *= radius[:rest]


def _add_on_lattice(value, noise, std, divisor, out):
    """Add whole numbers, ``rint(value / lattice) + rint(2**30 normal)``: exact while sums stay below 2**22 sd."""
    lattice = std * 2.0**-30
    scratch = torch.empty(min(_SUM_PIECE, value.numel()), dtype=torch.float64, device=value.device)
    for start in range(0, value.numel(), _SUM_PIECE):
        piece = slice(start, start + _SUM_PIECE)
        whole = scratch[: value[piece].numel()].copy_(value[piece]).mul_(1.0 / lattice).round_()
        torch.mul(noise[piece].add_(whole), lattice / divisor, out=out[piece])
