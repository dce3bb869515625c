import os

import torch
import torch.multiprocessing as mp


def worker(rank):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    torch.cuda.set_device(0)
    print(torch.ones(2, device="cuda:0"))


if __name__ == "__main__":
    print(torch.cuda.device_count())
    mp.spawn(worker, nprocs=torch.cuda.device_count())
