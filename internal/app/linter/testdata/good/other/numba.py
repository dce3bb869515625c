import os

os.environ["NUMBA_CUDA_LOG_LEVEL"] = "WARNING"

from numba import cuda


@cuda.jit
def add(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] += b[i]


if cuda.is_available():
    cuda.select_device(0)
