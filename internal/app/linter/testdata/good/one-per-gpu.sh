#!/bin/bash
# One process per GPU, each with a list of its own.
IFS=, read -r -a gpus <<< "${GPUS:-0,1,2,3}"
pids=()
for i in "${!gpus[@]}"; do
  CUDA_VISIBLE_DEVICES="${gpus[$i]}" nohup python infer.py --shard "$i" --shards "${#gpus[@]}" --device cuda:0 > "shard$i.log" 2>&1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || exit 1
done
