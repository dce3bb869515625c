import functools
import multiprocessing as mp
import os

import torch


def work(config, gpu):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    torch.zeros(1).cuda()


def other(gpu):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    torch.zeros(1).cuda()


def launch(function, n):
    context = mp.get_context("spawn")
    for i in range(n):
        context.Process(target=function, args=(i,)).start()


if __name__ == "__main__":
    print(torch.cuda.is_available())
    launch(other, 2)
    with mp.get_context("spawn").Pool(2) as pool:
        pool.map(functools.partial(work, {}), range(2))
