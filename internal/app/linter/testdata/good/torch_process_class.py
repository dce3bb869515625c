import multiprocessing as mp
import os

import ray
import torch


class Worker(mp.Process):
    def __init__(self, gpu):
        super().__init__()
        self.gpu = gpu

    def run(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = str(self.gpu)
        torch.zeros(1, device="cuda")


@ray.remote
class Actor:
    def __init__(self, gpu):
        os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)


if __name__ == "__main__":
    for i in range(2):
        Worker(i).start()
