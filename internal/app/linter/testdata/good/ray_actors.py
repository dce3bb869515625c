import os

import ray
import torch

ray.init(num_gpus=2)


@ray.remote(num_gpus=1)
class Worker:
    def __init__(self):
        self.device = torch.device("cuda:0")
        print(os.environ["CUDA_VISIBLE_DEVICES"])

    def run(self):
        return torch.zeros(1).to(self.device).item()


@ray.remote(num_gpus=0.5)
def task(i):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(ray.get_gpu_ids()[0])
    return torch.ones(1, device="cuda").item() + i


workers = [Worker.remote() for _ in range(2)]
print(ray.get([w.run.remote() for w in workers] + [task.remote(1)]))
