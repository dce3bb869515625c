import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import torch

assert not torch.cuda.is_available()
x = torch.zeros(3, device="cpu").to("cpu")
