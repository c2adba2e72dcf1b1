"""MLP-Mixer. Tolstikhin et al. 2021."""
from .layers import layer_norm, mlp, patch_embed, pool


def mixer_block(w, x_BSC, options, context):
    """MLPs over tokens, then over channels. Tolstikhin et al., eq. 1; Sparse-MLP, eq. 8 and 9."""
    y_BSC = x_BSC + mlp(w.token_mlp, layer_norm(w.token_norm, x_BSC).mT, options["gelu"]).mT
    return y_BSC + mlp(w.channel_mlp, layer_norm(w.channel_norm, y_BSC), options["gelu"])


def mixer(w, image_BCHW, options, context, run_block=mixer_block):
    """Patch embedding, blocks, norm, mean over patches."""
    x_BSC = patch_embed(w.stem, image_BCHW, options["patch"])
    for block in w.blocks:
        x_BSC = run_block(block, x_BSC, options, context)
    return pool(layer_norm(w.norm, x_BSC), context)
