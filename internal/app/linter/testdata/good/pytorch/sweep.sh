#!/bin/bash
gpus=(0 1 2 3)
for i in "${!gpus[@]}"; do
  CUDA_VISIBLE_DEVICES=${gpus[$i]} python train.py --seed "$i" > "log.$i" 2>&1 &
done
wait
