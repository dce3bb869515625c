import os
from unittest import mock

import torch


def check(train):
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
        train()
    with mock.patch("torch.cuda.is_available", return_value=False):
        train()
    return torch.backends.cudnn.benchmark
