#!/bin/bash
gpuard run --mem 20G -- python train.py
eval "$(gpuard reserve --shell --gpus 2)"
torchrun --standalone --nproc-per-node 2 train.py
