#!/bin/bash
set -o allexport
source ./settings.env.sh
BATCH=64
set +o allexport
torchrun --standalone --nproc_per_node=gpu train.py --batch "$BATCH"
