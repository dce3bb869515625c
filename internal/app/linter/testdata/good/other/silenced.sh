#!/bin/bash
# the wrapper expands the range
# gpuard:ignore mask-range
CUDA_VISIBLE_DEVICES=0-3 ./expand-and-run train.py
export NCCL_P2P_DISABLE=1  # gpuard:ignore variable-debug
./expand-and-run eval.py
