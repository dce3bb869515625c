import os

os.environ["CUDA_VISIBLE_DEVICES"] = "1"

from numba import cuda


@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b[i]


cuda.select_device(0)
