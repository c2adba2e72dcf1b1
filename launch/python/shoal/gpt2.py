"""GPT-2 (Radford et al. 2019); with RoPE, RMS norm, SwiGLU and grouped-query attention it is Llama."""
import torch

from .experts import feed_forward
from .layers import attend, layer_norm, linear, number, pool, rms_norm

EPS = 1e-5


def rotation_at(tokens, head_width, base, like):
    """Cosines and sines of the RoPE angles position * base^(-2 i / H), [S, H / 2] each."""
    power = torch.arange(head_width // 2, dtype=torch.float64, device=like.device) * 2 / head_width
    angle = torch.arange(tokens).to(like).unsqueeze(-1) * (base ** -power).to(like)
    return angle.cos(), angle.sin()


def causal_attention(w, x_BSC, heads, rotation, scale=None):
    """Attention of each token to itself and earlier tokens."""
    width = x_BSC.shape[-1]
    kv_width = (len(w.qkv.weight) - width) // 2
    parts = linear(w.qkv, x_BSC).split([width, kv_width, kv_width], -1)
    return linear(w.proj, attend(*parts, heads, rotation, is_causal=True, scale=scale))


def gpt2(w, token_BS, options, context):
    """Embeddings, blocks y1 = x + Attention(norm(x)), y = y1 + MLP(norm(y1)), and a norm."""
    norm = rms_norm if options["norm"] == "rms" else layer_norm
    x_BSC = w.tokens[token_BS]  # [V, C], with V rounded up to a multiple of pad_vocabulary
    head_width, rotation = options["width"] // options["heads"], None
    if options["position"] == "rope":
        rotation = rotation_at(token_BS.shape[1], head_width, number(options["rope_base"], 10000.0), x_BSC)
    else:
        x_BSC = x_BSC + w.positions[:token_BS.shape[1]]
    for index, block in enumerate(w.blocks):
        scale = head_width ** -0.5 / (index + 1 if options["scale_attn_by_inverse_layer_idx"] else 1)
        normed_BSC = norm(block.attention_norm, x_BSC, EPS)
        x_BSC = x_BSC + causal_attention(block.attention, normed_BSC, options["heads"], rotation, scale)
        x_BSC = x_BSC + feed_forward(block, norm(block.mlp_norm, x_BSC, EPS), options, context)
    return pool(norm(w.norm, x_BSC, EPS), context)
