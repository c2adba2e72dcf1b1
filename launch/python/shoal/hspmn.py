"""HSPMN v2.1: every token passes through a causal convolution and an MLP (or experts); only tokens with an open
gate attend. Jędryczko 2025, "Adaptive Computation via Context-Aware Target-Sparsity Regularized Gating and
Sparse-Query Attention"."""
from math import ceil, floor

import torch
import torch.nn.functional as F

from .draws import words
from .experts import feed_forward, highest
from .gpt2 import EPS, causal_attention, rotation_at
from .layers import Weights, attend, linear, number, pool, rms_norm


def causal_conv(w, x_BSC):
    """y[t] = w[0] x[t - 2] + w[1] x[t - 1] + w[2] x[t] for each channel, with zeros before the first token."""
    return F.conv1d(F.pad(x_BSC.mT, (2, 0)), w.weight.T.unsqueeze(1), groups=x_BSC.shape[2]).mT


def open_tokens(w, u_BSC, gate, context, most_tokens):
    """Mask [B, S] of the tokens that attend. Section 3.1; an evaluation has no noise."""
    position_S = torch.arange(u_BSC.shape[1], device=u_BSC.device)
    is_token_BS = torch.ones_like(context.token_BS) > 0 if context.is_token_BS is None else context.is_token_BS
    every = gate["anchor_every"]  # anchors: every n-th token attends, whatever its gate; 0: none
    is_anchor_BS = is_token_BS & (position_S % every == 0 if every > 0 else position_S < 0)
    first_S = position_S - position_S % gate["block"]  # tokens of a block share the gate of the first
    is_open_BS = choose(w, u_BSC, gate, context, is_token_BS & (position_S == first_S))[:, first_S]
    is_open_BS = is_open_BS & is_token_BS & ~is_anchor_BS
    if number(gate["capacity"], None) is not None:  # closes the gates of later tokens
        num_anchors = ceil(most_tokens / every) if every > 0 else 0
        most = ceil(gate["capacity"] * gate["rate"] * most_tokens - 1e-9) - num_anchors
        is_open_BS = is_open_BS & (is_open_BS.cumsum(1) <= most)
    return is_open_BS | is_anchor_BS


def choose(w, u_BSC, gate, context, is_first_BS):
    """Open gates, of which only those of the first token of each block are used."""
    if gate["select"] == "random":  # 52 random bits, keyed by token and position
        id_BS = torch.arange(u_BSC.shape[1], device=u_BSC.device) * 2**32 + context.token_BS
        high, low = words(context.seed, w.name, id_BS.flatten(), 2).unbind(1)
        return ((((high & 0xFFFFF) * 2**32 + low).double() + 0.5) * 2.0**-52 < gate["rate"]).view_as(id_BS)
    logits_BS = u_BSC @ w.weight + w.bias
    if gate["select"] == "threshold":  # the moving average of a quantile (Raposo et al. 2024, section 3.5)
        return logits_BS > w.threshold
    if gate["select"] == "topk_predictor":  # a causal prediction of what topk would select
        return u_BSC @ w.predictor_weight + w.predictor_bias > 0
    logits_BS = logits_BS.masked_fill(~is_first_BS, -torch.inf)
    counts = [max(1, floor(int(ranked) * gate["rate"] + 1e-9)) for ranked in is_first_BS.sum(1)]
    return torch.stack([highest(own, k) for own, k in zip(logits_BS, counts)])


def sparse_attention(w, u_BSC, options, rotation, context):
    """Attention to the keys and values of all tokens, section 3.2. For simplicity, queries are
    computed for all tokens; the caller discards those of tokens with closed gates."""
    # In a causal model, padding comes after all tokens that attend.
    mask = None if options["causal"] or context.is_token_BS is None else context.is_token_BS[:, None, None]
    parts = linear(w.query, u_BSC), *linear(w.key_value, u_BSC).chunk(2, -1)
    return linear(w.proj, attend(*parts, options["heads"], rotation, attn_mask=mask, is_causal=options["causal"]))


def hspmn_block(w, x_BSC, options, rotation, context):
    """y = x + MLP(conv(norm(x))) + open * Attention(norm(x)). Section 3."""
    y_BSC = x_BSC + feed_forward(w, causal_conv(w.conv, rms_norm(w.mlp_norm, x_BSC, EPS)), options, context)
    if "attention" not in w:  # model.contextual: none
        return y_BSC
    u_BSC = rms_norm(w.attention_norm, x_BSC, EPS)
    if "qkv" in w.attention:  # every token attends
        return y_BSC + causal_attention(w.attention, u_BSC, options["heads"], rotation)
    gate = w.gate if "gate" in w else Weights({}, f"{w.name}.gate")  # a random gate has no tensors
    is_open_BS = open_tokens(gate, u_BSC, options["gate"], context, number(options["context"], context.sequence))
    attended_BSC = sparse_attention(w.attention, u_BSC, options, rotation, context)
    return y_BSC + attended_BSC.masked_fill(~is_open_BS.unsqueeze(2), 0)


def hspmn(w, token_BS, options, context):
    """Embedding, blocks, norm."""
    x_BSC = w.tokens[token_BS]
    rotation = rotation_at(token_BS.shape[1], options["width"] // options["heads"], options["rope_base"], x_BSC)
    for block in w.blocks:
        x_BSC = hspmn_block(block, x_BSC, options, rotation, context)
    return pool(rms_norm(w.norm, x_BSC, EPS), context)
