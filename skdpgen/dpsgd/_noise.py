"""Gaussian noise for gradient sums: drawn ahead of the steps in a second thread, or piece by piece as it is added."""

from __future__ import annotations

import math
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .._types import BoundedSum
from ..utils.watching import Query, tell_release, watched

__all__ = ["GradientNoise", "NormalStream", "fill_fast", "fill_secure"]

# Entries of a sum brought to the lattice at once: the scratch array stays in the cache.
_SUM_PIECE = 2**17
# Steps of noise kept ready. One would make the training wait for the thread after each step.
_AHEAD = 2
# Normals of one piece of work, of which a few arrays fit in a core's cache. Half a piece of the secure method is no
# more than torch takes on in one thread: threads of its own would fight the training for the cores.
_PIECE = {"secure": 2**16, "fast": 2**17}


class GradientNoise:
    """The one place of DP-SGD where noise is added: ``sum + N(0, (noise_multiplier * l2_bound)**2 I)``.

    Parameters
    ----------
    shapes : sequence of torch.Size
        Shapes of the tensors of the sums.
    noise_multiplier : float
        Standard deviation over the bound of one contribution; 0 adds nothing.
    rng : NoiseGenerator
        Gives the key; kind ``"fast"`` chooses that method below for float32 sums, anything else is ``"secure"``'s:
        float32 noise on a sum of more bits would leave its lowest bits as they are.
    steps : int, default=None
        Draw no more than this many times; None: as often as asked.
    device : of the sums
    dtype : of the sums, the widest of them
    piece : int, default=None
        Normals drawn, and entries added to, at once; None: as many as suit a core's cache.

    Notes
    -----
    Bits are AES-256's in counter mode in both methods, under a key of 256 bits drawn from `rng`.

    - secure: pairs of 64-bit uniforms, Box-Muller in float64 (the largest normal is sqrt(2 * 64 * log 2) = 9.4 sd:
      beyond it lies 5e-21 of the law). Noise and sum are rounded to whole multiples of 2**-30 standard deviations of
      the noise and added exactly, so that no low-order bit of the sum shows in the result.
    - fast: one 64-bit word a pair, 32 bits of radius, 40 in its tail (largest normal 7.5 sd, 5e-14 of the law
      beyond), and 32 of angle, Box-Muller in float32, no lattice: low-order bits of the released gradients are not
      protected.

    Normals of the secure method, and of either on an accelerator, are drawn ahead of the steps in a second thread, in
    the memory of two steps and a half. Those of the fast method on the processor cost too little for that: they are
    drawn as they are added, piece by piece in the cache, in as many threads as torch has. Threads end with `close`, or
    with the object as a context manager.
    """

    def __init__(self, shapes, noise_multiplier, rng, *, steps=None, device="cpu", dtype=torch.float32, piece=None):
        self.noise_multiplier = float(noise_multiplier)
        self.lattice = rng.kind != "fast" or dtype != torch.float32
        self.device = torch.device(device)
        self._ends = np.cumsum([torch.Size(shape).numel() for shape in shapes]).tolist()
        self._left = math.inf if steps is None else int(steps)
        self._pid = os.getpid()
        self._thread = self._pool = None
        self._in_turn = not self.lattice and self.device.type == "cpu"
        size = self._ends[-1] if self._ends else 0
        kind = "secure" if self.lattice else "fast"
        self._stream = NormalStream(bytes(rng.random_bytes(32)), size, kind, piece=piece)
        self._sum_piece = _SUM_PIECE if piece is None else int(piece)
        self.private = rng.private

    @classmethod
    def like(cls, parameters, noise_multiplier, rng, *, steps=None):
        """Make the noise for gradients of these parameters: their shapes, their device, the widest of their dtypes."""
        dtype = reduce(torch.promote_types, (p.dtype for p in parameters))
        shapes, device = [p.shape for p in parameters], parameters[0].device
        return cls(shapes, noise_multiplier, rng, steps=steps, device=device, dtype=dtype)

    @property
    def description(self) -> str:
        """Bits and method, for the privacy card."""
        if not self.private:
            return "AES-256-CTR with a known seed: NOT PRIVATE, for tests only"
        if self.lattice:
            return "AES-256-CTR; Box-Muller in float64 on 64-bit uniforms (tail to 9.4 sd), lattice 2^-30 sd"
        return "AES-256-CTR; Box-Muller in float32 on 32-bit uniforms, 40-bit in the tail (to 7.5 sd), no lattice"

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
            If `bounded` is not a BoundedSum: noise is scaled by a bound, never by hand; or if its dtype is another
            than that of the object.
        RuntimeError
            After a fork, or when more draws than `steps` are asked for.
        """
        if not isinstance(bounded, BoundedSum):
            raise TypeError(f"noise is added to a BoundedSum alone; got {type(bounded).__name__}")
        if not self.lattice and any(value.dtype != torch.float32 for value in bounded.value):
            raise TypeError("fast noise is for float32 sums: give dtype= of these")
        if out is None:
            out = [torch.empty_like(v) for v in bounded.value]
        if self.noise_multiplier == 0:
            for target, value in zip(out, bounded.value):
                torch.div(value, divisor, out=target)
            return out
        std = self.noise_multiplier * bounded.l2_bound
        self._count_draw()
        if self._in_turn:
            self._add_in_turn(bounded.value, std, divisor, out)
        else:
            self._add_drawn(bounded.value, std, divisor, out)
        if watched():
            self._tell(bounded, divisor, std, out)
        return out

    def _tell(self, bounded, divisor, std, out):
        """Pass the release on to a watcher, and go on with what a test puts in its place."""
        told = (torch.cat([part.detach().reshape(-1).double().cpu() for part in out]) * divisor).numpy()
        query = Query(bounded, self.noise_multiplier, divisor=divisor)
        answer = tell_release(told, std, "gradient", query=query, seeded=not self.private)
        if answer is not told:
            for target, part in zip(out, np.split(answer / divisor, self._ends[:-1])):
                target.copy_(torch.from_numpy(part).reshape(target.shape))

    def _count_draw(self):
        if os.getpid() != self._pid:
            raise RuntimeError("noise cannot be drawn after a fork: parent and child would draw equal noise")
        if self._left <= 0:
            raise RuntimeError("more noise was asked for than the steps of the plan")
        self._left -= 1

    def _add_in_turn(self, values, std, divisor, out):
        """Draw each piece and add it to the entries that it is for, before it leaves the cache."""
        if self._pool is None:
            workers = max(1, min(torch.get_num_threads(), len(self._stream)))
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="skdpgen-noise")
            self._scratch = [self._stream.scratch() for _ in range(workers)]
        values = [value.detach().reshape(-1).numpy() for value in values]
        targets = [target.view(-1).numpy() for target in out]

        def work(worker):
            scratch = self._scratch[worker]
            for k in range(worker, len(self._stream), len(self._scratch)):  # no piece is any other thread's
                start, stop = self._stream.span(k)
                noise = scratch.normals[: stop - start]
                fill_fast(self._stream.words(k, scratch), scratch, noise, std / divisor)
                for value, target, here, there in self._overlaps(values, targets, start, stop):
                    # never a sum without noise where others could read it
                    terms = np.multiply(value[here], np.float32(1.0 / divisor), out=scratch.terms[there])
                    np.add(terms, noise[there], out=target[here])

        others = [self._pool.submit(work, worker) for worker in range(1, len(self._scratch))]
        work(0)
        for other in others:
            other.result()

    def _overlaps(self, values, targets, start, stop):
        """Yield each tensor with entries between `start` and `stop` of all: its own slice, and that of the piece."""
        begin = 0
        for value, target, end in zip(values, targets, self._ends):
            low, high = max(begin, start), min(end, stop)
            if low < high:
                yield value, target, slice(low - begin, high - begin), slice(low - start, high - start)
            begin = end

    def _add_drawn(self, values, std, divisor, out):
        drawn = self._take_drawn(std / divisor)
        start = 0
        for target, value, end in zip(out, values, self._ends):
            noise, value, target = drawn[start:end].to(self.device), value.reshape(-1), target.view(-1)
            if self.lattice:
                _add_on_lattice(value, noise, std, divisor, target, piece=self._sum_piece)
            else:
                torch.add(noise, value, alpha=1.0 / divisor, out=target)
            start = end
        self._spare.put(drawn)

    def _take_drawn(self, scale):
        """Return what `fill_secure` or `fill_fast` made, the latter with standard deviation `scale`."""
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
        dtype = torch.float64 if self.lattice else torch.float32
        for _ in range(min(_AHEAD, self._left + 1)):
            self._spare.put(torch.empty(self._stream.size, dtype=dtype, pin_memory=self.device.type == "cuda"))
        fill = fill_secure if self.lattice else partial(fill_fast, scale=scale)
        args = (fill, self._stream, self._left + 1, self._ready, self._spare, self._stop)
        self._thread = threading.Thread(target=_work, args=args, name="skdpgen-noise", daemon=True)
        self._thread.start()

    def close(self):
        """End the thread and drop noise that was not used."""
        if self._thread is not None:
            self._stop.set()
            self._spare.put(None)
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
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
        scratch = stream.scratch()
        while draws > 0:
            buffer = spare.get()
            if buffer is None:
                return
            normals = buffer.numpy()
            for k in range(len(stream)):
                if stop.is_set():
                    return
                start, end = stream.span(k)
                fill(stream.words(k, scratch), scratch, normals[start:end])
            ready.put(buffer)
            draws -= 1
    except BaseException as error:
        ready.put(error)


def _add_on_lattice(value, noise, std, divisor, out, *, piece=_SUM_PIECE):
    """Add whole numbers, ``rint(value / lattice) + rint(2**30 normal)``: exact while sums stay below 2**22 sd."""
    lattice = std * 2.0**-30
    scratch = torch.empty(min(piece, value.numel()), dtype=torch.float64, device=value.device)
    for start in range(0, value.numel(), piece):
        here = slice(start, start + piece)
        whole = scratch[: value[here].numel()].copy_(value[here]).mul_(1.0 / lattice).round_()
        torch.mul(noise[here].add_(whole), lattice / divisor, out=out[here])


class NormalStream:
    """Random words for `size` normals at a time, in pieces that any thread may draw in any order.

    Each piece has its own counter of 2**64 blocks under the one key: who draws what, and how many threads there are,
    does not change a bit, and no two pieces share one.

    Parameters
    ----------
    key : bytes
        32 secret bytes.
    size : int
        Normals of one draw of all pieces.
    kind : {"secure", "fast"}
    piece : int, default=None
        Normals of one piece; None: as many as suit a core's cache.
    """

    def __init__(self, key, size, kind, *, piece=None):
        self.size, self.kind = int(size), kind
        self._piece = _PIECE[kind] if piece is None else int(piece)
        self._ciphers = [
            Cipher(algorithms.AES(key), modes.CTR((k << 64).to_bytes(16, "big"))).encryptor()
            for k in range(-(-self.size // self._piece))
        ]

    def __len__(self):
        return len(self._ciphers)

    def span(self, k):
        """Return where piece `k` starts and ends among the normals."""
        return k * self._piece, min((k + 1) * self._piece, self.size)

    def scratch(self):
        """Return the arrays that one thread works in."""
        return _Scratch(min(self._piece, self.size), self.kind)

    def words(self, k, scratch):
        """Return the next 64-bit words of piece `k`, in `scratch`: valid until its next use."""
        start, stop = self.span(k)
        pairs = -(-(stop - start) // 2)
        words = pairs if self.kind == "fast" else 2 * pairs
        self._ciphers[k].update_into(memoryview(scratch.zeros)[: 8 * words], scratch.bytes)
        return scratch.words[:words]


class _Scratch:
    def __init__(self, piece, kind):
        pairs = -(-piece // 2)
        words = pairs if kind == "fast" else 2 * pairs
        self.zeros, self.bytes = bytes(8 * words), bytearray(8 * words + 15)
        self.words = np.frombuffer(self.bytes, dtype=np.int64, count=words)
        dtype = np.float32 if kind == "fast" else np.float64
        lengths = (pairs, pairs, 2 * pairs, 2 * pairs)
        self.radius, self.angle, self.normals, self.terms = (np.empty(n, dtype=dtype) for n in lengths)


def fill_secure(words, scratch, out):
    """Fill with float64 standard normals that are multiples of 2**-30: adding them on the lattice is exact."""
    pairs = len(words) // 2
    radius, angle = scratch.radius[:pairs], scratch.angle[:pairs]
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
    rest = len(out) - pairs
    into, radius, angle = (torch.from_numpy(array) for array in (out, radius, angle))
    torch.cos(angle, out=into[:pairs]).mul_(radius)
    torch.sin(angle[:rest], out=into[pairs:]).mul_(radius[:rest])
    np.rint(out, out=out)  # torch would round a piece of this length in several threads


def fill_fast(words, scratch, out, scale):
    """Fill with float32 normals of standard deviation `scale`: 32 bits of radius, 40 in its tail, and 32 of angle."""
    pairs = len(words)
    height, turn = words.view(np.uint32)[:pairs], words.view(np.int32)[pairs:]
    radius, angle = scratch.radius[:pairs], scratch.angle[:pairs]
    np.copyto(radius, height, casting="same_kind")
    radius += 0.5
    # Where it shows, the lowest bits of the angle, which the angle has no use for, are bits below the radius's.
    rare = np.flatnonzero(height < 2**8)
    radius[rare] = height[rare] + ((turn[rare] & 255) + 0.5) / 256
    radius *= 2.0**-32
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    radius *= scale  # its square could be below the smallest float32
    np.copyto(angle, turn, casting="same_kind")
    angle *= math.pi * 2.0**-31
    rest = len(out) - pairs
    np.cos(angle, out=out[:pairs])
    np.sin(angle[:rest], out=out[pairs:])
    out[:pairs] *= radius
    out[pairs:] *= radius[:rest]
