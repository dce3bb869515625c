import os

os.environ["CUDA_VISIBLE_DEVICES"] = "3"

import cupy
import jax
import tensorflow as tf
import torch

torch.cuda.set_device(torch.device("cpu"))  # want set-device-cpu
model = torch.nn.Linear(2, 2)
model.cuda(1)  # want device-beyond-mask
