#!/bin/bash
for i in 1 2; do
  XLA_CLIENT_MEM_FRACTION=.45 CUDA_VISIBLE_DEVICES=0 python actor.py --id "$i" &
done
XLA_CLIENT_MEM_FRACTION=.9 CUDA_VISIBLE_DEVICES=1 python learner.py
