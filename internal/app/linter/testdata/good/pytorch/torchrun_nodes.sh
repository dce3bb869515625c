#!/bin/sh
torchrun \
  --nnodes 2 \
  --nproc-per-node gpu \
  --rdzv-backend c10d \
  --rdzv-endpoint "$HEAD_NODE:$PORT" \
  train.py
