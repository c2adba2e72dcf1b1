"""ConvNeXt, dense, with experts or with Nexus layers. Liu et al. 2022."""
import torch.nn.functional as F

from .experts import feed_forward
from .layers import layer_norm, patch_embed


def convnext_block(w, x_BHWC, options, context):
    """y = x + gamma * MLP(norm(conv(x))), conv depthwise 7 x 7. Liu et al., figure 4."""
    y_BCHW = F.conv2d(x_BHWC.permute(0, 3, 1, 2), w.conv.weight, w.conv.bias, padding=3, groups=len(w.conv.weight))
    normed_BSC = layer_norm(w.norm, y_BCHW.permute(0, 2, 3, 1)).flatten(1, 2)
    return x_BHWC + (feed_forward(w, normed_BSC, options, context) * w.gamma).view_as(x_BHWC)


def convnext(w, image_BCHW, options, context):
    """Stem, stages of blocks (numbered across stages), mean over positions, norm."""
    x_BSC = layer_norm(w.stem_norm, patch_embed(w.stem, image_BCHW, options["stem_patch"]))
    x_BHWC, blocks = x_BSC.unflatten(1, (image_BCHW.shape[2] // options["stem_patch"], -1)), iter(w.blocks)
    for stage, depth in enumerate(options["depths"]):
        if stage > 0:  # halves height and width
            down, rows = w.downsamples[stage - 1], x_BHWC.shape[1] // 2
            x_BSC = patch_embed(down.conv, layer_norm(down.norm, x_BHWC).permute(0, 3, 1, 2), 2)
            x_BHWC = x_BSC.unflatten(1, (rows, -1))
        for _ in range(depth):
            x_BHWC = convnext_block(next(blocks), x_BHWC, options, context)
    return layer_norm(w.norm, x_BHWC.flatten(1, 2) if context.features == "tokens" else x_BHWC.mean((1, 2)))
