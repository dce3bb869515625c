import os

os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

import torch

device = torch.device("cuda:1" if torch.cuda.device_count() > 1 else "cuda:0")
print(torch.ones(3, device=device))
