#!/bin/sh
# the tests of the loader need no GPU
CUDA_VISIBLE_DEVICES="" python -m pytest tests/loader
CUDA_VISIBLE_DEVICES=-1 python -m pytest tests/cpu
env -u CUDA_VISIBLE_DEVICES python -m pytest tests/gpu
