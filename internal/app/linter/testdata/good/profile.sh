#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
nsys profile -o report --trace=cuda,nvtx python train.py --steps 20
ncu --set full -o kernels python train.py --steps 2
CUDA_VISIBLE_DEVICES=1 uv run --with torch python train.py
CUDA_VISIBLE_DEVICES=1 conda run -n train --no-capture-output python train.py
CUDA_VISIBLE_DEVICES=1 poetry run python train.py
numactl --cpunodebind=0 --membind=0 python train.py
taskset -c 0-15 python train.py
time python train.py
