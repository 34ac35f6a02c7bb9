"""Gaussian noise on gradient sums: the one place of DP-SGD that adds noise, and the streams of normals behind it."""

from __future__ import annotations

import math
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from .._types import BoundedSum
from ..utils.forks import process_identity
from ..utils.watching import Query, tell_release, watched

# Entries of a sum brought to the lattice at once, so that the temporary array stays in the cache.
_SUM_PIECE = 2**17
# Steps of noise drawn ahead. With one, the training would wait for the thread after each step.
_AHEAD = 2
# Normals of one piece of work, of which a few arrays fit in a core's cache. Half a piece of the secure method is small
# enough that torch computes it in one thread: further threads would compete with the training for the cores.
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
        Source of the key. The kind ``"fast"`` chooses that method below for float32 sums. All other sums get the
        ``"secure"`` method: float32 noise would leave the lowest bits of a wider sum unchanged.
    steps : int, default=None
        Largest number of draws; None: no limit.
    device : str or torch.device, default="cpu"
        Device of the sums.
    dtype : torch.dtype, default=torch.float32
        Widest dtype of the sums.
    piece : int, default=None
        Normals drawn, and entries added to, at once; None: as many as suit a core's cache.
    ahead : bool, default=True
        Whether a second thread draws normals ahead of the steps. For a few hundred normals a step, waiting for it costs
        more than the normals. The bits are the same.

    Notes
    -----
    In both methods the bits are those of AES-256 in counter mode, under a key of 256 bits drawn from `rng`.

    - secure: pairs of 64-bit uniforms, Box-Muller in float64. The largest normal is sqrt(2 * 64 * log 2) = 9.4 standard
      deviations, beyond which the probability is 5e-21. Noise and sum are rounded to whole multiples of 2**-30 standard
      deviations of the noise and added exactly, so that the result shows no low-order bit of the sum.
    - fast: one 64-bit word for each pair: 32 bits of radius, 40 in its tail (largest normal 7.5 standard deviations,
      probability 5e-14 beyond), and 32 of angle; Box-Muller in float32, no lattice. Low-order bits of the released
      gradients are not protected.

    Normals of the secure method, and of both methods on an accelerator, are drawn ahead of the steps in a second
    thread (`ahead`), in the memory of two and a half steps. Those of the fast method on a CPU cost too little for that:
    they are drawn as they are added, piece by piece in the cache, in as many threads as torch has. `close`, or the end
    of a ``with`` block, ends the threads.
    """

    def __init__(
        self, shapes, noise_multiplier, rng, *, steps=None, device="cpu", dtype=torch.float32, piece=None, ahead=True
    ):
        self.noise_multiplier = float(noise_multiplier)
        self.lattice = rng.kind != "fast" or dtype != torch.float32
        self.device = torch.device(device)
        self._ends = np.cumsum([torch.Size(shape).numel() for shape in shapes]).tolist()
        self._left = math.inf if steps is None else int(steps)
        self._process = process_identity()
        self._thread = self._pool = None
        self._scratch, self._ahead = None, bool(ahead)
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
        """Return ``(bounded.value + noise) / divisor``: everything computed from it is post-processing.

        Parameters
        ----------
        bounded : BoundedSum
            Its value is a list of tensors; the standard deviation is ``noise_multiplier * bounded.add_or_remove_one``.
        divisor : float, default=1.0
            A public constant, the expected batch size; it and the bound are the same in all calls.
        out : list of tensor, default=None
            Tensors to write to; None: new ones.

        Raises
        ------
        TypeError
            If `bounded` is not a BoundedSum, because noise is scaled by a bound alone; or if its dtype is not that of
            the object.
        RuntimeError
            After a fork, or when more draws than `steps` are asked for.
        """
        if not isinstance(bounded, BoundedSum):
            raise TypeError(f"noise is added to a BoundedSum alone; got {type(bounded).__name__}")
        if not self.lattice and any(value.dtype != torch.float32 for value in bounded.value):
            raise TypeError("fast noise is for float32 sums: give dtype= of the sums to GradientNoise")
        if out is None:
            out = [torch.empty_like(v) for v in bounded.value]
        if self.noise_multiplier == 0:
            for target, value in zip(out, bounded.value):
                torch.div(value, divisor, out=target)
            return out
        std = self.noise_multiplier * bounded.add_or_remove_one
        self._count_draw()
        if self._in_turn:
            self._add_in_turn(bounded.value, std, divisor, out)
        else:
            self._add_drawn(bounded.value, std, divisor, out)
        if watched():
            self._tell(bounded, divisor, std, out)
        return out

    def _tell(self, bounded, divisor, std, out):
        """Report the release to a watcher, and continue with the value that a test returns in its place."""
        released = (torch.cat([part.detach().reshape(-1).double().cpu() for part in out]) * divisor).numpy()
        query = Query(bounded, self.noise_multiplier, divisor=divisor)
        answer = tell_release(released, std, "gradient", query=query, seeded=not self.private)
        if answer is not released:
            for target, part in zip(out, np.split(answer / divisor, self._ends[:-1])):
                target.copy_(torch.from_numpy(part).reshape(target.shape))

    def _count_draw(self):
        if process_identity() != self._process:
            raise RuntimeError("noise cannot be drawn after a fork: parent and child would draw equal noise")
        if self._left <= 0:
            raise RuntimeError("more noise was asked for than the steps of the plan")
        self._left -= 1

    def _add_in_turn(self, values, std, divisor, out):
        """Draw each piece and add it to its entries, before it leaves the cache."""
        if self._pool is None:
            workers = max(1, min(torch.get_num_threads(), len(self._stream)))
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="skdpgen-noise")
            self._scratch = [self._stream.scratch() for _ in range(workers)]
        values = [value.detach().reshape(-1).numpy() for value in values]
        targets = [target.view(-1).numpy() for target in out]

        def work(worker):
            scratch = self._scratch[worker]
            for k in range(worker, len(self._stream), len(self._scratch)):  # no two threads have one piece
                start, stop = self._stream.span(k)
                noise = scratch.normals[: stop - start]
                fill_fast(self._stream.words(k, scratch), scratch, noise, std / divisor)
                for value, target, here, there in self._overlaps(values, targets, start, stop):
                    # the target never holds a sum without noise
                    terms = np.multiply(value[here], np.float32(1.0 / divisor), out=scratch.terms[there])
                    np.add(terms, noise[there], out=target[here])

        others = [self._pool.submit(work, worker) for worker in range(1, len(self._scratch))]
        work(0)
        for other in others:
            other.result()

    def _overlaps(self, values, targets, start, stop):
        """Yield each tensor with entries between `start` and `stop`: value, target, its slice and the piece's."""
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
        if self._ahead:
            self._spare.put(drawn)

    def _take_drawn(self, scale):
        """Return the normals of `fill_secure`, or those of `fill_fast` with standard deviation `scale`."""
        if not self._ahead:
            return self._draw(scale)
        if self._thread is None:
            self._start(scale)
        if scale != self._scale:
            raise ValueError(
                "the bound or the divisor changed, and noise at the scale of the first release is drawn already"
            )
        drawn = self._ready.get()
        if isinstance(drawn, BaseException):
            raise RuntimeError("drawing noise failed") from drawn
        return drawn

    def _draw(self, scale):
        """Draw the normals of one step in this thread."""
        if self._scratch is None:
            self._scratch = self._stream.scratch()
        drawn = torch.empty(self._stream.size, dtype=torch.float64 if self.lattice else torch.float32)
        _fill_all(self._fill(scale), self._stream, self._scratch, drawn.numpy())
        return drawn.to(self.device)

    def _fill(self, scale):
        return fill_secure if self.lattice else partial(fill_fast, scale=scale)

    def _start(self, scale):
        self._scale = scale
        self._ready, self._spare, self._stop = queue.Queue(), queue.Queue(), threading.Event()
        dtype = torch.float64 if self.lattice else torch.float32
        for _ in range(min(_AHEAD, self._left + 1)):
            self._spare.put(torch.empty(self._stream.size, dtype=dtype, pin_memory=self.device.type == "cuda"))
        args = (self._fill(scale), self._stream, self._left + 1, self._ready, self._spare, self._stop)
        self._thread = threading.Thread(target=_work, args=args, name="skdpgen-noise", daemon=True)
        self._thread.start()

    def close(self):
        """End the threads and discard noise that was not used."""
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
            if not _fill_all(fill, stream, scratch, buffer.numpy(), stop):
                return
            ready.put(buffer)
            draws -= 1
    except BaseException as error:
        ready.put(error)


def _fill_all(fill, stream, scratch, normals, stop=None):
    """Draw the normals of one step, piece by piece; return whether all of them were drawn before `stop` was set."""
    for k in range(len(stream)):
        if stop is not None and stop.is_set():
            return False
        start, end = stream.span(k)
        fill(stream.words(k, scratch), scratch, normals[start:end])
    return True


def _add_on_lattice(value, noise, std, divisor, out, *, piece=_SUM_PIECE):
    """Add whole numbers, ``rint(value / lattice) + rint(2**30 normal)``: exact while sums stay below 2**22 sd."""
    lattice = std * 2.0**-30
    scratch = torch.empty(min(piece, value.numel()), dtype=torch.float64, device=value.device)
    for start in range(0, value.numel(), piece):
        here = slice(start, start + piece)
        whole = scratch[: value[here].numel()].copy_(value[here]).mul_(1.0 / lattice).round_()
        torch.mul(noise[here].add_(whole), lattice / divisor, out=out[here])


class NormalStream:
    """Random words from AES-256 in counter mode for `size` normals, in pieces that threads may draw in any order.

    Each piece has a separate counter of 2**64 blocks under the one key. The bits do not depend on the number of threads
    nor on their order, and no two pieces share a block.

    `key`: 32 secret bytes. `size`: number of normals of one draw of all pieces. `kind`: "secure" or "fast". `piece`:
    normals of one piece; None: as many as suit a core's cache.
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
        """Return the first and the last index (exclusive) of piece `k` among the normals."""
        return k * self._piece, min((k + 1) * self._piece, self.size)

    def scratch(self):
        """Return the working arrays of one thread."""
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
    # In the tail the lowest 8 bits of the angle, below its float32 precision, refine the radius.
    rare = np.flatnonzero(height < 2**8)
    radius[rare] = height[rare] + ((turn[rare] & 255) + 0.5) / 256
    radius *= 2.0**-32
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    radius *= scale  # before the product with the angle: the square of `scale` could be below the smallest float32
    np.copyto(angle, turn, casting="same_kind")
    angle *= math.pi * 2.0**-31
    rest = len(out) - pairs
    np.cos(angle, out=out[:pairs])
    np.sin(angle[:rest], out=out[pairs:])
    out[:pairs] *= radius
    out[pairs:] *= radius[:rest]
