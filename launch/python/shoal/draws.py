"""Random numbers used by hash routers and random token gates: functions of the seed, the layer's name, a row's
ID and an index. Salmon et al. 2011 (Philox4x32-10)."""
import torch

MASK = 0xFFFFFFFF


def product(factor, x):
    """High and low 32 bits of the product of two 32-bit numbers."""
    return (factor * (x >> 16) + (factor * (x & 0xFFFF) >> 16)) >> 16, factor * x & MASK


def philox(counter, key):
    """128 random bits as four words, for a counter of four words and a key of two."""
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        (high_a, low_a), (high_c, low_c) = product(0xD2511F53, a), product(0xCD9E8D57, c)
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = first + 0x9E3779B9 & MASK, second + 0xBB67AE85 & MASK
    return a, b, c, d


def words(seed, layer, id_N, count):
    """Random 32-bit words for each row, int64 [N, count], generated in blocks of four."""
    name = 0xCBF29CE484222325
    for byte in layer.removeprefix("backbone.").encode():  # FNV-1a
        name = (name ^ byte) * 0x100000001B3 & (1 << 64) - 1
    run = philox((seed & MASK, seed >> 32, 9, 0x53484F41), (0x243F6A88, 0x85A308D3))
    key0, key1, tag, _ = philox((name & MASK, name >> 32, 0, 0), run[:2])
    blocks = [philox((torch.full_like(id_N, block), id_N & MASK, id_N >> 32, torch.full_like(id_N, tag)), (key0, key1))
              for block in range((count + 3) // 4)]
    return torch.stack([word for block in blocks for word in block], 1)[:, :count]
