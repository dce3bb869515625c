#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
export CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-$USER
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
nvidia-cuda-mps-control -d
for i in 1 2 3; do
  CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 python worker.py --id "$i" &
done
wait %2 %3 %4
echo quit | nvidia-cuda-mps-control
