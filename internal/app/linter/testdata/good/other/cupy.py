import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
os.environ["CUPY_GPU_MEMORY_LIMIT"] = "50%"

import cupy as cp

with cp.cuda.Device(0):
    print(cp.arange(10).sum())
