import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import torch
import torch.multiprocessing as mp

model = torch.nn.Linear(2, 2)
count = torch.cuda.device_count()
second = "cuda:1" if count > 1 else "cuda:0"
x = torch.zeros(1, device=second)
if torch.cuda.device_count() > 1:
    model = torch.nn.DataParallel(model, device_ids=[0, 1])


def work(rank):
    torch.cuda.set_device(rank)


if __name__ == "__main__":
    if count >= 4:
        mp.spawn(work, nprocs=4)
