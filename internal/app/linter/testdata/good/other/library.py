"""A module that others import: it must not touch the environment."""

import functools

import torch


@functools.lru_cache
def pick_device(index=None):
    if index is not None:
        return torch.device("cuda", index)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def seed(value):
    torch.manual_seed(value)
    torch.cuda.manual_seed_all(value)
