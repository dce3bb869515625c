#!/bin/sh
NPROC=$(nvidia-smi --list-gpus | wc -l)
exec torchrun --standalone --nproc_per_node "$NPROC" train.py --epochs 3 "$@"
