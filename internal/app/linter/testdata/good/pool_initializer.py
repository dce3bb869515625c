import multiprocessing as mp
import os
from concurrent.futures import ProcessPoolExecutor

import torch


def choose(numbers):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(numbers.get())


def work(x):
    return torch.tensor(x, device="cuda:0").item()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    numbers = context.Queue()
    for i in range(torch.cuda.device_count()):
        numbers.put(i)
    print(torch.cuda.get_device_name(0))
    with ProcessPoolExecutor(2, mp_context=context, initializer=choose, initargs=(numbers,)) as pool:
        print(list(pool.map(work, range(8))))
