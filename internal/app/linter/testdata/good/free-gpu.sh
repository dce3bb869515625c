#!/bin/bash
# The GPU with the most free memory.
best=$(nvidia-smi --query-gpu=memory.free,index --format=csv,noheader,nounits | sort -rn | head -n1 | cut -d' ' -f2)
CUDA_VISIBLE_DEVICES=$best
export CUDA_VISIBLE_DEVICES
while read -r script; do
  python "$script"
done < queue.txt
