#!/bin/bash
(
  export CUDA_VISIBLE_DEVICES=0
  cd train
  python train.py
) &
(
  export CUDA_VISIBLE_DEVICES=1
  python -m eval.watch --every 600
) &
wait
