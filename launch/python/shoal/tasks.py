"""Tasks: what a model computes from its backbone's features."""
import torch.nn.functional as F

from .layers import linear


def classify(model, x, lengths):
    """Logits [B, classes]; also for the task `linear_probe`."""
    return linear(model.head, model.features(x, lengths, model.recipe["task"]["pool"]))


def lm(model, token_BS, lengths):
    """Logits [B, S, vocabulary] of each next token; the head is tied to the embedding unless the file has its own."""
    weight_VC = model.head.weight if "head" in model else model.backbone.tokens
    return F.linear(model.features(token_BS, lengths, "tokens"), weight_VC[:model.samples["vocabulary"]])


def denoise(model, noisy_BCHW, lengths):
    """Restored images [B, channels, H, W] for noisy images, not clamped to [0, 1]."""
    patch, head = model.recipe["model"]["patch"], model.head
    pixels_BSP = model.features(noisy_BCHW, kind="tokens") @ head.weight  # a transposed convolution
    image = F.fold(pixels_BSP.mT, noisy_BCHW.shape[2:], patch, stride=patch) + head.bias.view(-1, 1, 1)
    return noisy_BCHW - image if model.recipe["task"]["residual"] else image


def projection(w, x_BD):
    """Linear layers without biases, each followed by batch norm with running statistics, with ReLU between them."""
    for layer in ("1", "2", "3")[:3 if "fc3" in w else 2]:
        norm, x_BD = w["norm" + layer], F.relu(x_BD) if layer > "1" else x_BD
        affine = (norm.weight, norm.bias) if "weight" in norm else ()
        x_BD = F.batch_norm(linear(w["fc" + layer], x_BD), norm.running_mean, norm.running_var, *affine)
    return x_BD


def moco_v3(model, image_BCHW, lengths):
    """Queries [B, out]; `model.features` is the pretrained encoder. Chen, Xie and He 2021. The file also
    contains the momentum encoder, key_backbone and key_projector, which computed the keys."""
    return projection(model.predictor, projection(model.projector, model.features(image_BCHW)))


TASKS = {"classify": classify, "denoise": denoise, "linear_probe": classify, "lm": lm, "moco_v3": moco_v3}
