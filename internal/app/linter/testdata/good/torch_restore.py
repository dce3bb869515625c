import os

before = os.environ.get("CUDA_VISIBLE_DEVICES", "")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import torch

os.environ["CUDA_VISIBLE_DEVICES"] = before


def run():
    torch.zeros(1).to("cpu")


def clean():
    os.environ.pop("CUDA_DEVICE_ORDER", None)
