"""Gradient norms of single examples and clipped sums, layer by layer, from activations and output gradients.

Each rule takes a layer, its input ``a`` and the gradient ``g`` of the summed losses with respect to its output. It
returns the squared gradient norm of every example (float64) and a function that, given one factor for each example,
yields the layer's summed gradients. An example's gradient is formed only where that is the cheapest way to its norm.

The input of a layer may be a multiple of the batch: ``(batch, places, features)``, or ``(batch * places, ...)`` with
the places of an example adjacent. Places of one example are summed *before* the norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

# Scalars of one block of unfolded patches or example gradients (2 MB: larger blocks are slower, because they leave the
# cache), and of a layer's example gradients that are stored until they are summed (128 MB).
_BLOCK = 2**19
_KEEP = 2**25
# Examples whose float32 gradients are added in one product (see `add_product`).
SUMMED_TOGETHER = 64
# Gram matrices are multiplied in float64, at about this many times the cost of a float32 product.
_GRAM_COST = 3
# Rounding may hide a cancellation between the places of an example: the float32 sum of terms of total size S has an
# error of about 2**-20 S. Adding 2**-22 S**2 to the squared norm bounds that error by 2**-9 of the clip norm.
_CANCELLATION = 2.0**-22
# Rows of a unit are more likely to cancel, so that the clip would enlarge what is rounded otherwise beside other units.
# With S the sum of the norms of the gradients of its rows, adding 2**-10 S**2 to the squared norm bounds an error of
# 2**-20 S by 2**-15 of the clip norm. Rows with orthogonal gradients lose m 2**-11 of their norm by it, rows with equal
# gradients 2**-11.
_ROWS_CANCELLATION = 2.0**-10


class UnsupportedShapeError(ValueError):
    """A layer's input does not have the batch as its leading dimension, so its rows belong to no single example."""


@dataclass
class LayerGradient:
    """Squared norms of one layer's example gradients and the way to their weighted sum."""

    square_norms: torch.Tensor
    # ``weighted_sum(factors, out, beta)``, factors of shape (batch,): each tensor of the dictionary `out` (parameter
    # name -> tensor) becomes ``beta * out + sum_i factors[i] * grad_i``; with ``beta=0`` its content is not read
    weighted_sum: Callable[[torch.Tensor, dict[str, torch.Tensor], int], None]


class Pool(dict):
    """Buffers that outlive a step: new ones of tens of megabytes cost more than the products in them."""

    def get_buffer(self, key, shape, like):
        """Return a tensor of that shape whose content is arbitrary."""
        size = math.prod(shape)
        buffer = self.get(key)
        if buffer is None or buffer.numel() < size or buffer.device != like.device or buffer.dtype != like.dtype:
            buffer = self[key] = like.new_empty(size)
        return buffer[:size].view(shape)

    # Rows of one example: several where it is a unit (see `_units`). They are adjacent among its places.
    rows = 1
    # Whether the gradient of an example is computed in float64. Float32 products of a batch are rounded by the index in
    # it: that of a record is its place, but that of a unit follows from the other units.
    exact = False

    def add_up(self, x, dim):
        """Sum over dimensions, in float64 where gradients are."""
        return x.sum(dim, dtype=torch.float64 if self.exact else None)

    def total(self, batch):
        """Return how many examples a pass has room for, this batch among them: a public number."""
        return batch

    def get_kept(self, key, shape, like):
        """As `get_buffer`, for gradients that are stored until they are summed."""
        return self.get_buffer(key, shape, like)

    def square_norms(self, x):
        """Squared norm of each leading slice of a tensor, accumulated in float64."""
        return torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float64).square_()


def _by_example(x: torch.Tensor, batch: int) -> torch.Tensor:
    """Reshape (batch * places, ...) to (batch, places, ...)."""
    if x.shape[0] == batch:
        return x.unsqueeze(1)
    if x.shape[0] % batch:
        raise UnsupportedShapeError("a layer's input does not start with the batch dimension")
    return x.reshape(batch, -1, *x.shape[1:])


def _gram_norms(left: torch.Tensor, right: torch.Tensor, pool: Pool) -> torch.Tensor:
    """Squared norm of ``sum_t left[:, t] (x) right[:, t]`` from the two Gram matrices over t; shapes (b, T, .)."""
    left, right = left.double(), right.double()
    size = (left.square().sum(-1) * right.square().sum(-1)).sqrt_().sum(1)
    gram = torch.bmm(left, left.transpose(1, 2)).mul_(torch.bmm(right, right.transpose(1, 2)))
    return _norms_of_gram(gram, size, pool)


def _norms_of_gram(gram, size, pool):
    """Squared norms from the inner products (b, T, T) of the gradients of places, whose norms sum to `size`."""
    norms = gram.sum((1, 2)).clamp_(min=0).add_(size.square_(), alpha=_CANCELLATION)
    if pool.rows > 1:
        within = gram.unflatten(2, (pool.rows, -1)).unflatten(1, (pool.rows, -1)).diagonal(dim1=1, dim2=3).sum((1, 2))
        norms.add_(within.clamp_(min=0).sqrt_().sum(1).square_(), alpha=_ROWS_CANCELLATION)
    return norms


def _trainable(layer: nn.Module, name: str) -> bool:
    parameter = getattr(layer, name, None)
    return parameter is not None and parameter.requires_grad


def _small(gradients: dict[str, torch.Tensor], pool: Pool) -> LayerGradient:
    """Rule for few parameters: the gradients themselves are stored; those given are of rows, b times ``pool.rows``."""
    norms = sum(pool.square_norms(gradient) for gradient in gradients.values())
    if pool.rows > 1:
        size = norms.unflatten(0, (-1, pool.rows)).sqrt().sum(1)
        gradients = {name: pool.add_up(rows.unflatten(0, (-1, pool.rows)), 1) for name, rows in gradients.items()}
        norms = sum(pool.square_norms(gradient) for gradient in gradients.values())
        norms.add_(size.square_(), alpha=_ROWS_CANCELLATION)

    def weighted_sum(factors, out, beta):
        for name, gradient in gradients.items():
            add_product(out[name].view(-1), gradient.flatten(1), factors, beta, pool)

    return LayerGradient(norms, weighted_sum)


def _row_sums(x, pool):
    """Sums over the places of each row: (b, T, n) to (b * rows, n)."""
    return pool.add_up(x if pool.rows == 1 else x.reshape(len(x) * pool.rows, -1, x.shape[-1]), 1)


def _put(out, value, beta):
    out.add_(value) if beta else out.copy_(value)


def add_product(out, left, right, beta, pool):
    """Set `out` to ``beta * out + left.T @ right``, a sum over rows of which no order of additions matters.

    `left` (n, M), `right` (n, N) or (n,): of examples, each of which a record may add. `out` (M, N) or (M,).
    In float64, the sum is exact but for 2**-53 of the sum of the sizes of its terms. In float32, a chain of additions
    errs by up to 2**-24 of this sum for each of them. So `SUMMED_TOGETHER` rows are added in one product, and then the
    products (see `slack_of_sums`). No product is added to a sum while it is computed: its chain might begin with the
    sum.
    """
    exact = out.dtype == torch.float64
    add, product = (out.addmv_, torch.mv) if right.dim() == 1 else (out.addmm_, torch.mm)
    for i in range(0, len(left), size := 16 * SUMMED_TOGETHER if exact else SUMMED_TOGETHER):
        rows = left[i : i + size].t(), right[i : i + size]
        if exact:
            add(*(x.double() for x in rows), beta=beta)
        elif beta:
            out.add_(product(*rows, out=pool.get_buffer("product", out.shape, out)))
        else:
            product(*rows, out=out)
        beta = 1


def _join(parts: list[LayerGradient]) -> LayerGradient:
    def weighted_sum(factors, out, beta):
        for part in parts:
            part.weighted_sum(factors, out, beta)

    return LayerGradient(sum(part.square_norms for part in parts), weighted_sum)


def linear(layer: nn.Linear, a: torch.Tensor, g: torch.Tensor, batch: int, pool: Pool) -> LayerGradient:
    """``norm(g_i a_i^T) = norm(g_i) norm(a_i)`` with one place, Gram matrices or the product itself with several."""
    a = _by_example(a, batch).reshape(batch, -1, layer.in_features)
    g = _by_example(g, batch).reshape(batch, -1, layer.out_features)
    places = g.shape[1]
    weight, bias = _trainable(layer, "weight"), _trainable(layer, "bias")
    if places == 1:
        # the gradient by the bias is g itself: an input of one more entry, 1
        norms = pool.square_norms(g) * ((pool.square_norms(a) if weight else 0) + int(bias))
        return LayerGradient(norms, _linear_sum(a[:, 0], g[:, 0], pool))
    left, parts = g.mT.unsqueeze(1), []

    def right_of(i, j):
        return a[i:j].unsqueeze(1)

    if weight:
        if places * (layer.in_features + layer.out_features) * _GRAM_COST < layer.in_features * layer.out_features:
            parts.append(LayerGradient(_gram_norms(a, g, pool), _sum_of_places(left, right_of)))
        else:
            parts.append(_outer_product(left, right_of, layer.in_features, pool, layer))
    if bias:
        parts.append(_small({"bias": _row_sums(g, pool)}, pool))
    return _join(parts)


def _linear_sum(a, g, pool):
    """Weighted sum of the gradients of examples of one place: inputs (n, N) and gradients by outputs (n, M)."""

    def weighted_sum(factors, out, beta):
        if "weight" in out:
            # the factor of an example may scale either side of the product: the narrower one is cheaper
            narrow, wide = (g, a) if g.shape[-1] <= a.shape[-1] else (a, g)
            scaled = torch.mul(narrow, factors.view(-1, 1), out=pool.get_buffer("scaled", narrow.shape, narrow))
            left, right = (scaled, wide) if narrow is g else (wide, scaled)
            add_product(out["weight"], left, right, beta, pool)
        if "bias" in out:
            add_product(out["bias"], g, factors, beta, pool)

    return weighted_sum


def _outer_product(left, right_of, width, pool, key) -> LayerGradient:
    """Rule from example gradients ``left @ right``; shapes (b, G, M, T) and (b, G, T, N = width).

    `right_of(i, j)` makes the right-hand side of examples i to j. The gradients are stored for the weighted sum when
    they fit in `_KEEP` scalars, else the products are computed again.
    """
    batch, places, rows = left.shape[0], left.shape[-1], pool.rows
    shape = (*left.shape[1:-1], width)
    scalars = math.prod(shape) * (1 if _is_one_product(left, rows) else rows)
    keep = pool.total(batch) * math.prod(shape) <= _KEEP
    step = min(batch, max(1, _BLOCK // max(places * width, scalars)))
    gradients = (
        pool.get_kept(key, (batch, *shape), left) if keep else pool.get_buffer((key, "part"), (step, *shape), left)
    )
    norms = left.new_empty(batch, dtype=torch.float64)
    for i in range(0, batch, step):
        j = min(batch, i + step)
        right = right_of(i, j)
        part = gradients[i:j] if keep else gradients[: j - i]
        if rows == 1:
            _multiply(left[i:j], right, part, pool)
            norms[i:j] = pool.square_norms(part)
        else:
            size = _add_up_rows(left[i:j], right, part, pool)
            norms[i:j] = pool.square_norms(part).add_(size.square_(), alpha=_ROWS_CANCELLATION)
        if not keep:
            # the sum has other rounding errors than these products
            norms[i:j] += _CANCELLATION * pool.square_norms(left[i:j]) * pool.square_norms(right)

    def weighted_sum(factors, out, beta):
        add_product(out["weight"].view(-1), gradients.flatten(1), factors, beta, pool)

    return LayerGradient(norms, weighted_sum if keep else _sum_of_places(left, right_of))


def _sum_of_places(left, right_of):
    """Weighted sum of the gradients ``left @ right`` of examples, over all places of all examples; as `_outer_product`.

    In float64: the places of an example may cancel, so that the terms are larger than its gradient.
    """

    def weighted_sum(factors, out, beta):
        batch, n_groups, n_left, places = left.shape
        step, total = max(1, _BLOCK // (n_groups * n_left * places)), 0
        for i in range(0, batch, step):
            own, right = left[i : i + step].double(), right_of(i, min(batch, i + step)).double()
            own.mul_(factors[i : i + step].double().view(-1, 1, 1, 1))
            # (G, M, b T) and (G, b T, N)
            total = total + torch.bmm(own.permute(1, 2, 0, 3).flatten(2), right.transpose(0, 1).flatten(1, 2))
        _put(out["weight"], total.view(out["weight"].shape), beta)

    return weighted_sum


def _is_one_product(left, rows):
    """Whether the gradient of a unit is one product: each row has one place, and there is one group."""
    return left.shape[1] == 1 and left.shape[-1] == rows


def _multiply(left, right, out, pool):
    """Write the products of examples to `out`."""
    if pool.exact:
        out.copy_(torch.matmul(left.double(), right.double()))
    else:
        torch.matmul(left, right, out=out)


def _add_up_rows(left, right, out, pool):
    """Write the gradients of units of several rows; return the sums of the norms of the gradients of their rows."""
    if _is_one_product(left, pool.rows):
        # the gradient of a row is a product of two vectors, and so is its norm
        _multiply(left, right, out, pool)
        return (_norms(left[:, 0], 1) * _norms(right[:, 0], 2)).sum(1)
    left, right = (x.double() if pool.exact else x for x in (left, right))
    of_rows = left.unflatten(-1, (pool.rows, -1)).movedim(-2, 1), right.unflatten(-2, (pool.rows, -1)).movedim(-3, 1)
    of_rows = torch.matmul(*of_rows)
    out.copy_(of_rows.sum(1))
    return _norms(of_rows.flatten(2), 2).sum(1)


def _norms(x, dim):
    return torch.linalg.vector_norm(x, dim=dim, dtype=torch.float64)


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def _patches(x, kernel, dilation, padding, stride, size, groups):
    """Unfold (n, C, H, W) to (n, groups, size[0] * size[1], C / groups * kernel elements): one row for each place."""
    if _pair(kernel) == (1, 1) and _pair(stride) == (1, 1) and _pair(padding) == (0, 0):
        unfolded = x
    else:
        pad_h, pad_w = _pair(padding)
        if pad_h or pad_w:
            x = functional.pad(x, (pad_w, pad_w, pad_h, pad_h))
        n, channels, height, width = x.stride()
        (k_h, k_w), (d_h, d_w), (s_h, s_w) = _pair(kernel), _pair(dilation), _pair(stride)
        # a strided view, copied once by the product: several times faster than unfolding image by image
        unfolded = x.as_strided(
            (x.shape[0], x.shape[1], k_h, k_w, size[0], size[1]),
            (n, channels, d_h * height, d_w * width, s_h * height, s_w * width),
        )
    return unfolded.reshape(x.shape[0], groups, -1, size[0] * size[1]).transpose(2, 3)


def convolution(
    layer: nn.Conv2d | nn.ConvTranspose2d, a: torch.Tensor, g: torch.Tensor, batch: int, pool: Pool
) -> LayerGradient:
    """An example's gradient is the product of the output gradient and the unfolded input (im2col).

    In a transposed convolution, input and output gradient exchange their roles.
    """
    parts = []
    if _trainable(layer, "bias"):
        parts.append(_small({"bias": _row_sums(_by_example(pool.add_up(g.flatten(2), 2), batch), pool)}, pool))
    if not _trainable(layer, "weight"):
        return _join(parts)
    if layer.transposed:
        padding, one, image = layer.padding, a, g
    else:
        a, padding = _padded_input(layer, a)
        one, image = g, a

    def patches(x):
        return _patches(x, layer.kernel_size, layer.dilation, padding, layer.stride, one.shape[2:], layer.groups)

    left = one.unflatten(1, (layer.groups, -1)).flatten(3)
    parts.append(_products_of_places(left, image, patches, batch, pool, layer))
    return _join(parts)


def _padded_input(layer: nn.Conv2d, a: torch.Tensor):
    """Return the input, padded where a convolution cannot pad it symmetrically with zeros, and the other padding."""
    pads = _conv_padding(layer)
    if layer.padding_mode == "zeros" and pads[0] == pads[1] and pads[2] == pads[3]:
        return a, (pads[2], pads[0])
    return functional.pad(a, pads, mode="constant" if layer.padding_mode == "zeros" else layer.padding_mode), (0, 0)


def _conv_padding(layer: nn.Conv2d) -> list[int]:
    """Padding as functional.pad takes it: left, right, top, bottom."""
    if layer.padding == "valid":
        return [0, 0, 0, 0]
    pads = []
    for axis in (1, 0):
        if layer.padding == "same":
            total = layer.dilation[axis] * (layer.kernel_size[axis] - 1)
            pads += [total // 2, total - total // 2]
        else:
            pads += [layer.padding[axis]] * 2
    return pads


def _products_of_places(left, image, patches, batch, pool, layer) -> LayerGradient:
    """Choose between Gram matrices and example gradients; left (n, G, M, T), patches(image) (n, G, T, N)."""
    left = _by_example(left, batch)
    image = _by_example(image, batch)
    _, folds, groups, rows, places = left.shape
    left = left.permute(0, 2, 3, 1, 4).reshape(batch, groups, rows, folds * places)

    def right_of(i, j):
        block = patches(image[i:j].flatten(0, 1))
        if folds == 1:
            return block
        return block.unflatten(0, (j - i, folds)).transpose(1, 2).flatten(2, 3)

    places *= folds
    width = right_of(0, min(1, batch)).shape[-1]
    if groups == 1 and places * (rows + width) * _GRAM_COST < rows * width:
        norms = left.new_empty(batch, dtype=torch.float64)
        step = max(1, _BLOCK // (places * (width + places)))
        for i in range(0, batch, step):
            j = min(batch, i + step)
            norms[i:j] = _gram_norms(right_of(i, j)[:, 0], left[i:j, 0].transpose(1, 2), pool)
        return LayerGradient(norms, _sum_of_places(left, right_of))
    return _outer_product(left, right_of, width, pool, layer)


def embedding(layer: nn.Embedding, a: torch.Tensor, g: torch.Tensor, batch: int, pool: Pool) -> LayerGradient:
    """Rows of the table that one example looks up twice are added before the norm: a Gram matrix masked by equality."""
    index = _by_example(a, batch).reshape(batch, -1)
    g = _by_example(g, batch).reshape(batch, -1, layer.embedding_dim)
    if layer.padding_idx is not None:
        g = torch.where((index == layer.padding_idx).unsqueeze(-1), torch.zeros_like(g), g)
    if index.shape[1] == 1:
        norms = pool.square_norms(g)
    else:
        double = g.double()
        same = index.unsqueeze(1) == index.unsqueeze(2)
        gram = torch.where(same, torch.bmm(double, double.transpose(1, 2)), 0.0)
        norms = _norms_of_gram(gram, torch.linalg.vector_norm(double, dim=2).sum(1), pool)

    def weighted_sum(factors, out, beta):
        terms = (g.double() * factors.double().view(-1, 1, 1)).flatten(0, 1)
        total = torch.zeros(layer.weight.shape, dtype=torch.float64, device=g.device)
        _put(out["weight"], total.index_add_(0, index.reshape(-1), terms), beta)

    return LayerGradient(norms, weighted_sum)


def layer_norm(layer: nn.LayerNorm, a: torch.Tensor, g: torch.Tensor, batch: int, pool: Pool) -> LayerGradient:
    """Few parameters: the example gradients are stored."""
    shape = tuple(layer.normalized_shape)
    normalised = functional.layer_norm(a, shape, None, None, layer.eps)
    return _affine(
        layer, normalised, g, batch, pool, lambda x: pool.add_up(x.reshape(batch * pool.rows, -1, *shape), 1)
    )


def group_norm(layer: nn.GroupNorm, a: torch.Tensor, g: torch.Tensor, batch: int, pool: Pool) -> LayerGradient:
    """Few parameters: the example gradients are stored."""
    normalised = functional.group_norm(a, layer.num_groups, None, None, layer.eps)

    def over_places(x):
        return pool.add_up(x.reshape(batch * pool.rows, -1, layer.num_channels, x[0, 0].numel()), (1, 3))

    return _affine(layer, normalised, g, batch, pool, over_places)


def _affine(layer, normalised, g, batch, pool, over_places) -> LayerGradient:
    if g.shape[0] % batch:
        raise UnsupportedShapeError("a layer's input does not start with the batch dimension")
    gradients = {}
    if _trainable(layer, "weight"):
        gradients["weight"] = over_places(normalised * g)
    if _trainable(layer, "bias"):
        gradients["bias"] = over_places(g)
    return _small(gradients, pool)


RULES: dict[type[nn.Module], Callable[..., LayerGradient]] = {
    nn.Linear: linear,
    nn.Conv2d: convolution,
    nn.ConvTranspose2d: convolution,
    nn.Embedding: embedding,
    nn.LayerNorm: layer_norm,
    nn.GroupNorm: group_norm,
}
