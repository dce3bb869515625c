#!/bin/bash
gpuard run --mem 20G -- python train.py
eval "$(gpuard env --lease --gpus 2)"
torchrun --standalone --nproc-per-node 2 train.py
