import os

import submitit
import torch


def train(seed):
    os.environ["CUDA_LAUNCH_BLOCKING"] = "0"
    return torch.cuda.device_count() + seed


executor = submitit.AutoExecutor(folder="log")
executor.update_parameters(gpus_per_node=1, timeout_min=10)
jobs = [executor.submit(train, seed) for seed in range(3)]
