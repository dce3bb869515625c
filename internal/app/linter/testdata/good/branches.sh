#!/bin/bash
if command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -q GPU; then
  export CUDA_VISIBLE_DEVICES=${1:-0}
else
  export CUDA_VISIBLE_DEVICES=
fi
case "$2" in
  many) export CUDA_VISIBLE_DEVICES=0,1,2,3; procs=4 ;;
  *) procs=1 ;;
esac
torchrun --standalone --nproc_per_node="$procs" train.py
