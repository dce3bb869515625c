import os

GPU = 3
os.environ["CUDA_VISIBLE_DEVICES"] = str(GPU)
import torch
import torch.multiprocessing as mp

device = f"cuda:{GPU}"
model = torch.nn.Linear(2, 2).to(device)  # want device-beyond-mask
ids = [0, 1]  # want device-beyond-mask
model = torch.nn.DataParallel(model, device_ids=ids)
PROCESSES = 4


def work(rank):
    pass


mp.spawn(work, (), PROCESSES)  # want more-processes-than-gpus
