import argparse
import os

import torch
import torch.nn as nn


class Trainer:
    def __init__(self, gpu):
        self.gpu = gpu
        self.model = nn.Linear(2, 2)
        self.model.cuda()

    def choose(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = self.gpu  # want late-assignment


def pick(gpu):
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # want late-assignment
    if gpu:
        os.environ["HIP_VISIBLE_DEVICES"] = gpu  # want late-assignment


def main():
    trainer = Trainer("1")
    trainer.choose()
    pick("1")


main()
