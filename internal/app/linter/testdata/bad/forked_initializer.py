import os
from concurrent.futures import ProcessPoolExecutor

import torch


def choose(number):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)  # want set-in-forked-worker


def work(x):
    return torch.zeros(1).cuda()


if __name__ == "__main__":
    torch.zeros(1).cuda()
    with ProcessPoolExecutor(2, initializer=choose, initargs=(0,)) as pool:
        pool.map(work, range(2))
