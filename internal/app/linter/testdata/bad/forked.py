import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pool

import torch
from torch.utils.data import DataLoader

torch.cuda.init()


def one(i):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(i)  # want set-in-forked-worker


def two():
    os.environ.update(CUDA_VISIBLE_DEVICES="0")  # want set-in-forked-worker


def three(i):
    os.putenv("CUDA_VISIBLE_DEVICES", str(i))  # want set-in-forked-worker


with ProcessPoolExecutor(2) as pool:
    pool.submit(one, 1)
with Pool(2, initializer=two) as pool:
    pool.map(len, [])
loader = DataLoader([1], num_workers=2, worker_init_fn=three)
