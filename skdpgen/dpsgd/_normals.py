"""Streams of normals from AES-256 in counter mode: the bits, and the two ways to turn them into normals."""

from __future__ import annotations

import math

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["NormalStream", "fill_fast", "fill_secure"]

# Normals of one piece of work, of which a few arrays fit in a core's cache. Half a piece of the secure method is no
# more than torch takes on in one thread: threads of its own would fight the training for the cores.
_PIECE = {"secure": 2**16, "fast": 2**17}


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
