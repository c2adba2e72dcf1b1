"""Routers, MoE layers and Nexus layers, as computed in an evaluation: without noise and without tokens
dropped by a capacity limit. Tokens are routed to units: experts (MLPs) or memory units (key-value tables)."""
from fractions import Fraction
from math import ceil, floor

import torch
import torch.nn.functional as F

from .draws import words
from .layers import ACTIVATIONS, Error, linear, mlp

LEAST_SUM = 1e-20  # added to a sum of scores before dividing by it
# Routers whose scores are the softmax of logits: Riquelme et al. 2021 and Lou et al. 2021, eq. 2; Shazeer et al.
# 2017, eq. 3 to 5; Lou et al. 2021 (Sparse-MLP), eq. 3; of an MLP; Clark et al. 2022 (S-BASE); Zhou et al. 2022.
BY_SOFTMAX = ("top_k", "noisy_top_k", "importance_score", "mlp", "sinkhorn", "expert_choice")
OTHERS = {  # DeepSeek-V3, eq. 13 to 15; Megatron-Core, with the least float32 where softplus underflows
    "sigmoid": torch.sigmoid, "sqrt_softplus": lambda logits: F.softplus(logits).clamp_min(2.0**-126).sqrt()}


def highest(score, k):
    """Mask of the k highest scores along the last dimension; ties go to the lower index."""
    index = score.sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(score, dtype=torch.bool).scatter(-1, index, True)


class Tokens:
    """The rows of a layer's input [B, R, D] without padding, and the routing groups in which they compete."""

    def __init__(self, x_BRD, context):
        self.samples, self.rows = x_BRD.shape[:2]
        row_T = torch.arange(self.samples * self.rows, device=x_BRD.device)
        self.row_T = row_T if context.is_token_BS is None else row_T[context.is_token_BS.flatten()]
        group_T = self.row_T // self.rows // context.group
        self.groups = [(group_T == group).nonzero().squeeze(1) for group in group_T.unique()]


def scores_of(w, x_TD, options):
    """Logits and scores of all units for each token, [T, U] each."""
    is_mlp = options["name"] == "mlp"
    logits_TU = linear(w.fc2, F.relu(linear(w.fc1, x_TD))) if is_mlp else x_TD @ w.weight
    return logits_TU, OTHERS.get(options["name"], lambda logits: logits.softmax(1))(logits_TU)


def route(layer, x_TD, options, tokens, context):
    """Combine weights [T, U], and a mask [T, U] of the units that each token is routed to."""
    name, weights = options["name"], options.get("weights")
    if name == "hash":
        return choose_by_hash(layer, options, tokens, context)
    if name not in BY_SOFTMAX and name not in OTHERS:
        raise Error(f"the router '{name}' of {layer.name} is not covered by this package")
    logits_TU, score_TU = scores_of(layer.router, x_TD, options)
    if name == "expert_choice":
        return choose_by_unit(score_TU, options, tokens)
    selection_TU = select(layer.router, logits_TU, score_TU, options)
    chosen_TU = highest(selection_TU, options["k"])
    weight_TU = score_TU * chosen_TU
    if weights["normalise"] == "topk_softmax":
        weight_TU = logits_TU.masked_fill(~chosen_TU, -torch.inf).softmax(1)
    elif weights["normalise"] == "sum":
        weight_TU = weight_TU / (weight_TU.sum(1, keepdim=True) + LEAST_SUM)
    if options.get("eval_drop", 0) > 0:
        allowed_TU = score_TU.masked_fill(selection_TU.isneginf(), 0)
        chosen_TU = chosen_TU & ~least_important(allowed_TU.amax(1), options, tokens).unsqueeze(1)
        weight_TU = weight_TU * chosen_TU
    if weights["renorm_after_drop"]:
        sum_T1 = weight_TU.sum(1, keepdim=True)
        weight_TU = weight_TU / sum_T1.where(sum_T1 > 0, torch.ones_like(sum_T1))
    return weight_TU * weights["scale"], chosen_TU


def select(w, logits_TU, score_TU, options):
    """Selection scores: a token is routed to the units with the highest logits, or scores with bias or groups."""
    groups, has_bias = options.get("groups", {"count": 1}), "selection_bias" in w
    score_TU = score_TU + w.selection_bias if has_bias else score_TU  # DeepSeek-V3, section 2.1.2
    if groups["count"] == 1:
        return score_TU if has_bias else logits_TU
    score_TGu = score_TU.unflatten(1, (groups["count"], -1))
    best = {"max": 1, "top2_sum": 2, "topk_sum": max(1, options["k"] // groups["keep"])}[groups["score"]]
    kept_TG = highest(score_TGu.topk(best, -1).values.sum(-1), groups["keep"])
    return score_TGu.masked_fill(~kept_TG.unsqueeze(2), -torch.inf).flatten(1)


def least_important(importance_T, options, tokens):
    """Mask of the least important tokens, a fraction eval_drop of each group. Lou et al. 2021, eq. 3."""
    dropped_T = torch.zeros_like(importance_T, dtype=torch.bool)
    for member in tokens.groups:
        order = importance_T[member].sort(descending=True, stable=True).indices
        dropped_T[member[order[len(member) - floor(Fraction(str(options["eval_drop"])) * len(member)):]]] = True
    return dropped_T


def choose_by_unit(score_TU, options, tokens):
    """Each unit selects the ceil(k T factor / U) best tokens of a group. Zhou et al. 2022, section 3.2."""
    chosen_TU = torch.zeros_like(score_TU, dtype=torch.bool)
    for member in tokens.groups:
        share = ceil(options["k"] * len(member) * Fraction(str(options["factor"])) / score_TU.shape[1])
        chosen_TU[member] = highest(score_TU[member].T, min(share, len(member))).T
    return score_TU * chosen_TU, chosen_TU


def choose_by_hash(layer, options, tokens, context):
    """The k units with the highest random numbers, keyed by vocabulary ID or position; each has weight 1 / k.
    Roller et al. 2021 (Hash Layers)."""
    key_BR = torch.arange(tokens.rows, device=tokens.row_T.device).expand(tokens.samples, -1)
    rows_are_tokens = context.token_BS is not None and context.token_BS.shape[1] == tokens.rows
    if options["by"] == "token" or (options["by"] == "auto" and rows_are_tokens):
        key_BR = context.token_BS
    draw_TU = words(context.seed, layer.name, key_BR.flatten()[tokens.row_T], len(list(layer.experts))) >> 9
    chosen_TU = highest(draw_TU, options["k"])
    return chosen_TU.to(next(layer.experts.parameters())) / options["k"], chosen_TU


def expert_linear(w, x_RD):
    """x W + b; experts store W as [in, out]."""
    return x_RD @ w.weight + w.bias if "bias" in w else x_RD @ w.weight


def expert(w, x_RD, options):
    """fc2(act(fc1(x))), or with a gate, fc2(act(gate(x)) * fc1(x)). Shazeer 2020, eq. 6."""
    activation, hidden_RH = ACTIVATIONS[options["activation"]], expert_linear(w.fc1, x_RD)
    if "gate" in w:
        return expert_linear(w.fc2, activation(expert_linear(w.gate, x_RD)) * hidden_RH)
    return expert_linear(w.fc2, activation(hidden_RH))


def memory_unit(w, x_RD, options):
    """The values of the k keys with the highest <query, key>, weighted by a softmax. OneSparse, algorithm A2; the
    paper's variant has no log_scale, and uses the row itself as the query."""
    if "log_scale" in w:
        x_RD = F.layer_norm(x_RD, x_RD.shape[-1:], eps=1e-6) * w.log_scale.exp()
    score_RK = x_RD @ w.keys.T
    return score_RK.masked_fill(~highest(score_RK, options["k"]), -torch.inf).softmax(-1) @ w.values


def moe_layer(w, x_BRD, options, context):
    """y = sum over a token's units of weight * unit(x), plus the shared experts, as one MLP."""
    tokens, unit = Tokens(x_BRD, context), memory_unit if options["experts"]["kind"] == "memory" else expert
    x_TD = x_BRD.flatten(0, 1)[tokens.row_T]
    weight_TU, chosen_TU = route(w, x_TD, options["router"], tokens, context)
    y_TD = expert(w.shared, x_TD, options["shared"]) if "shared" in w else torch.zeros_like(x_TD)
    for u, own in enumerate(w.experts):
        row = chosen_TU[:, u].nonzero().squeeze(1)
        y_TD = y_TD.index_add(0, row, unit(own, x_TD[row], options["experts"]) * weight_TU[row, u, None])
    y_RD = x_TD.new_zeros(tokens.samples * tokens.rows, x_TD.shape[1])
    return y_RD.index_copy(0, tokens.row_T, y_TD).view(x_BRD.shape)


def unit_length(x):
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def slot_router(w, x_BND, is_padding_BN1):
    """Weights [B, N, P] that mix tokens into the P slots of all units, and slot outputs back into tokens.
    OneSparse, algorithm A1; Puigcerver et al. 2024 (Soft MoE), section 2.1."""
    query_PD = w.queries.flatten(0, 1)
    if "log_scale" in w:
        dispatch_BNP = combine_BNP = unit_length(x_BND) @ (unit_length(query_PD) * w.log_scale.exp()).T
    else:  # the paper's variant
        dispatch_BNP, combine_BNP = (x_BND @ query_PD.T / temperature for temperature in w.temperature)
    return (dispatch_BNP.masked_fill(is_padding_BN1, -torch.inf).softmax(1),
            combine_BNP.softmax(2).masked_fill(is_padding_BN1, 0))


def nexus_layer(w, x_BND, options, context):
    """y = C unit(Dᵀ x), where each unit processes its own slots. Without memory units, this is Soft MoE."""
    has_padding = context.is_token_BS is not None
    is_padding_BN1 = ~context.is_token_BS.unsqueeze(2) if has_padding else torch.zeros_like(x_BND[..., :1]) > 0
    dispatch_BNP, combine_BNP = slot_router(w.router, x_BND, is_padding_BN1)
    slots = (dispatch_BNP.mT @ x_BND).chunk(len(w.router.queries), 1)
    experts, memory = (list(w[name]) if name in w else [] for name in ("experts", "memory"))
    done = [expert(own, slot, options["experts"]) for own, slot in zip(experts, slots)]
    done += [memory_unit(own, slot, options["memory"]) for own, slot in zip(memory, slots[len(experts):])]
    return combine_BNP @ torch.cat(done, 1)


def feed_forward(w, x_BSC, options, context):
    """A block's MLP, or the experts or Nexus layer that replace it."""
    if "moe" in w:
        return moe_layer(w.moe, x_BSC, options["moe"], context)
    if "nexus" in w:
        return nexus_layer(w.nexus, x_BSC, options["nexus"], context)
    return mlp(w.mlp, x_BSC, options.get("gelu"))
