"""Vision Transformer (Dosovitskiy et al. 2021), dense, with experts (V-MoE) or with Nexus layers (OneSparse)."""
import torch

from .experts import feed_forward
from .layers import attend, layer_norm, linear, patch_embed, pool


def vit_block(w, x_BSC, options, context):
    """y1 = x + a Attention(norm(x)), y = y1 + m MLP(norm(y1)): Dosovitskiy et al., eq. 2 and 3. a and m are
    scales per channel (LayerScale, Touvron et al. 2021b), or 1 without LayerScale."""
    query_key_value = linear(w.attention.qkv, layer_norm(w.attention_norm, x_BSC)).chunk(3, -1)
    mixed_BSC = linear(w.attention.proj, attend(*query_key_value, options["heads"]))
    y_BSC = x_BSC + (mixed_BSC * w.attention_scale if "attention_scale" in w else mixed_BSC)
    mixed_BSC = feed_forward(w, layer_norm(w.mlp_norm, y_BSC), options, context)
    return y_BSC + (mixed_BSC * w.mlp_scale if "mlp_scale" in w else mixed_BSC)


def sin_cos_positions(rows, columns, x_BSC):
    """[rows * columns, width]: sines and cosines of row and of column times 10000^(-d / (width / 4)), each in a
    quarter of the width. MoCo v3's code, vits.py."""
    width = x_BSC.shape[2]
    frequency = 10000.0 ** (-torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    row_S = torch.arange(rows, dtype=torch.float64).repeat_interleave(columns).outer(frequency)
    column_S = torch.arange(columns, dtype=torch.float64).repeat(rows).outer(frequency)
    return torch.cat([row_S.sin(), row_S.cos(), column_S.sin(), column_S.cos()], 1).to(x_BSC)


def vit(w, image_BCHW, options, context):
    """Patch embedding, positions, blocks, norm; features are the class token, or the mean over patches."""
    x_BSC = patch_embed(w.stem, image_BCHW, options["patch"])
    if "positions" not in w:  # fixed positions, zero for the class token
        x_BSC = x_BSC + sin_cos_positions(*[side // options["patch"] for side in image_BCHW.shape[2:]], x_BSC)
    x_BSC = torch.cat([w.cls.expand(len(x_BSC), 1, -1), x_BSC], 1) if "cls" in w else x_BSC
    x_BSC = x_BSC + w.positions if "positions" in w else x_BSC
    for block in w.blocks:
        x_BSC = vit_block(block, x_BSC, options, context)
    x_BSC = layer_norm(w.norm, x_BSC)
    return x_BSC[:, 0] if "cls" in w and context.features == "mean" else pool(x_BSC, context)
