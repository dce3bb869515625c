import os

os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"

import torch
from torch.nn import DataParallel

FAR = "cuda:2"
a = torch.device("cuda", 3)  # want device-beyond-mask
b = torch.zeros(2, device="cuda:1")
c = DataParallel(torch.nn.Linear(2, 2), device_ids=[0, 1, 2])  # want device-beyond-mask
d = torch.load("x.pt", map_location="cuda:2")  # want device-beyond-mask
