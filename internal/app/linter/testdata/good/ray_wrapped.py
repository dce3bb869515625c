import os

import ray
import torch


class Engine:
    def __init__(self, mask):
        os.environ["CUDA_VISIBLE_DEVICES"] = mask
        self.model = torch.nn.Linear(2, 2).cuda()


if __name__ == "__main__":
    print(torch.cuda.is_available())
    Remote = ray.remote(Engine)
    engines = [Remote.options(num_gpus=1).remote(str(i)) for i in range(2)]
