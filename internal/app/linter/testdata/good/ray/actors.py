import os

import ray

ray.init()


@ray.remote(num_gpus=1)
class Worker:
    def __init__(self):
        import torch

        self.device = torch.device("cuda:0")
        self.mask = os.environ["CUDA_VISIBLE_DEVICES"]

    def where(self):
        return self.mask, ray.get_gpu_ids()


workers = [Worker.remote() for _ in range(2)]
print(ray.get([w.where.remote() for w in workers]))
