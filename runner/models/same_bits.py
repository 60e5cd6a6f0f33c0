"""Parts of networks whose gradients have the same bits with any number of threads, where torch's own do not."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention


class LayerNorm(nn.LayerNorm):
    """Normalise the last dimension as ``torch.nn.LayerNorm`` does.

    torch sums the gradients of weight and bias once per thread and then over threads, so that their last bits depend on
    the number of threads. Here each column is summed by one thread.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalised input, of the same shape."""
        normalised: Tensor = _Normalise.apply(input, self.weight, self.bias, self.eps)
        return normalised


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        out, mean, scale = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        ctx.save_for_backward(x, mean, scale, weight, bias)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (grad,) = grads
        x, mean, scale, weight, bias = ctx.saved_tensors
        grad_x, _, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, weight.shape, mean, scale, weight, bias, [True, False, False]
        )
        standard = (x - mean) * scale
        return grad_x, (grad * standard).flatten(0, -2).sum(0), grad.flatten(0, -2).sum(0), None


def causal_attention(query: Tensor, key: Tensor, value: Tensor, *, dropped: float) -> Tensor:
    """Return attended values (windows, heads, places, size); each place sees the places up to itself.

    ``dropped``: share of the attention weights that are zeroed. torch's fused attention does not drop weights on a CPU;
    what it does instead has a softmax whose gradient's last bits depend on the number of threads.
    """
    if not dropped:
        return scaled_dot_product_attention(query, key, value, is_causal=True)
    places = query.shape[-2]
    hidden = torch.ones(places, places, dtype=torch.bool, device=query.device).triu(1)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    weights: Tensor = _Softmax.apply(scores.masked_fill(hidden, -torch.inf))
    return dropout(weights, dropped) @ value


class _Softmax(torch.autograd.Function):
    """The softmax of the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        weights = x.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        weighted = grads[0] * weights
        return weighted.sub_(weights * weighted.sum(-1, keepdim=True))


class TransformerLayer(nn.TransformerEncoderLayer):
    """Do what torch's layer does, with rows first and a mask that hides later tokens."""

    def __init__(self, size: int, heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__(size, heads, feed_forward, dropout, activation="gelu", batch_first=True)
        self.norm1, self.norm2 = LayerNorm(size), LayerNorm(size)

    def _sa_block(self, x: Tensor, *masks: Any, **options: Any) -> Tensor:
        attention = self.self_attn
        mixed = nn.functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        parts = mixed.unflatten(-1, (3, attention.num_heads, attention.head_dim)).permute(2, 0, 3, 1, 4)
        attended = causal_attention(*parts.unbind(), dropped=attention.dropout if self.training else 0.0)
        out: Tensor = self.dropout1(attention.out_proj(attended.transpose(1, 2).flatten(-2)))
        return out
