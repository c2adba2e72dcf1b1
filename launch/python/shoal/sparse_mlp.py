"""Sparse-MLP: a Mixer in which some blocks have experts for token mixing and experts for channel mixing.
Lou et al. 2021, "Cross-token Modeling with Conditional Computation"."""
from .experts import moe_layer
from .layers import layer_norm, linear, mlp
from .mixer import mixer, mixer_block


def sparse_block(w, x_BSC, options, context):
    """Rescales tokens and channels, by default to S' = 2 S and C' = C / 2, mixes them, and rescales back."""
    if "moe_s" not in w:
        return mixer_block(w, x_BSC, options, context)
    sparse, y = options["sparse"], x_BSC
    if "tokens_in" in w:
        y = linear(w.tokens_in, linear(w.channels_in, y).mT).mT  # eq. 4: [B, S', C']
    y = y + moe_layer(w.moe_s, layer_norm(w.token_norm, y).mT, sparse["token_moe"], context).mT  # eq. 5
    normed = layer_norm(w.channel_norm, y)
    if "moe_c" in w:
        y = y + moe_layer(w.moe_c, normed, sparse["channel_moe"], context)  # eq. 6
    else:
        y = y + mlp(w.channel_mlp, normed, options["gelu"])
    if "tokens_out" in w:
        y = linear(w.channels_out, linear(w.tokens_out, y.mT).mT)  # eq. 7
    return y + x_BSC if sparse["outer_residual"] else y


def sparse_mlp(w, image_BCHW, options, context):
    return mixer(w, image_BCHW, options, context, sparse_block)
