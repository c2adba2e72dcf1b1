"""The denoiser of "Adaptive Sparse Attention MoE Architecture": attention is a mixture of experts, in each of
which a query attends only to the k keys with the highest logits."""
from fractions import Fraction
from math import ceil

import torch
import torch.nn.functional as F

from .experts import LEAST_SUM, Tokens, expert_linear, highest, route, scores_of
from .gpt2 import EPS
from .layers import attend, layer_norm, linear, mlp, number, patch_embed, pool


def candidates_of(options, query, key, grid):
    """Mask of the candidate keys of each query, broadcastable to [B, N, S, S]."""
    rows, columns = grid
    row_S = torch.arange(rows, device=query.device).repeat_interleave(columns)
    column_S = torch.arange(columns, device=query.device).repeat(rows)
    if options["from"] == "window":  # a square of patches around the query's
        near = [(place[:, None] - place).abs() <= options["window"] // 2 for place in (row_S, column_S)]
        return near[0] & near[1]
    if options["from"] == "pooled":  # the blocks of patches whose mean keys have the highest logits
        block = options["block"]
        block_S = row_S // block * ceil(columns / block) + column_S // block
        is_in_PS = F.one_hot(block_S).T.to(key)
        mean_BNPH = (is_in_PS / is_in_PS.sum(1, keepdim=True)) @ key
        return highest(query @ mean_BNPH.mT, options["keep"])[..., block_S]
    return torch.ones_like(row_S) > 0  # all keys of the image


def attention_expert(w, x_BSD, options, heads, grid, shared):
    """Multi-head attention of each query to its k best candidates, component 4. `shared`: keys and values
    shared by all experts; None: the expert has its own."""
    key, value = shared or (expert_linear(w.key, x_BSD), expert_linear(w.value, x_BSD))
    query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, N, S, H]
                         for part in (expert_linear(w.query, x_BSD), key, value))
    logits_BNSS, tokens = query @ key.mT, x_BSD.shape[1]
    logits_BNSS = logits_BNSS.masked_fill(~candidates_of(options["candidates"], query, key, grid), -torch.inf)
    has_share = number(options["share"], 0) > 0
    k = ceil(Fraction(str(options["share"])) * tokens) if has_share else number(options["k"], tokens)
    logits_BNSS = logits_BNSS.masked_fill(~highest(logits_BNSS, k), -torch.inf)
    share_BNSS = (logits_BNSS * query.shape[-1] ** -0.5).softmax(-1)
    return expert_linear(w.out, (share_BNSS @ value).transpose(1, 2).flatten(2))


def attention_experts(w, x_BSD, options, grid, context):
    """y_i = sum over experts of weight_ie expert_e(x)_i, with the router's scores for all experts (soft mixing)
    or the weights of the experts that the token is routed to (hard). Components 3 to 6."""
    own, x_TD = options["attention"], x_BSD.flatten(0, 1)
    if own["mixing"] == "soft":
        _, score_TU = scores_of(w.router, x_TD, own["router"])
        weight_TU = score_TU / (score_TU.sum(1, keepdim=True) + LEAST_SUM)
    else:
        weight_TU, _ = route(w, x_TD, own["router"], Tokens(x_BSD, context), context)
    weight_BSU = weight_TU.unflatten(0, x_BSD.shape[:2])
    shared = linear(w.key_value, x_BSD).chunk(2, -1) if "key_value" in w else None
    # For simplicity, hard mixing also computes every expert for every token; unselected ones have weight 0.
    return sum(weight_BSU[..., u, None] * attention_expert(expert, x_BSD, own["experts"][u], options["heads"],
                                                           grid, shared) for u, expert in enumerate(w.experts))


def adaptive_attention(w, image_BCHW, options, context):
    """Patches, positions, and blocks y = x + merge(experts(norm(x))), out = y + MLP(norm(y)), component 5;
    without experts, blocks have standard attention."""
    x_BSD = patch_embed(w.stem, image_BCHW, options["patch"]) + w.positions
    grid = [side // options["patch"] for side in image_BCHW.shape[2:]]
    for block in w.blocks:
        normed_BSD = layer_norm(block.attention_norm, x_BSD, EPS)
        if "merge" in block:
            mixed_BSD = linear(block.merge, attention_experts(block.attention, normed_BSD, options, grid, context))
        else:
            query_key_value = linear(block.attention.qkv, normed_BSD).chunk(3, -1)
            mixed_BSD = linear(block.attention.proj, attend(*query_key_value, options["heads"]))
        x_BSD = x_BSD + mixed_BSD
        x_BSD = x_BSD + mlp(block.mlp, layer_norm(block.mlp_norm, x_BSD, EPS), "erf")
    return pool(layer_norm(w.norm, x_BSD, EPS) if "norm" in w else x_BSD, context)
