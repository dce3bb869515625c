#!/bin/bash
set -e
export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=0
CUDA_VISIBLE_DEVICES=0,1 ray start --head --port=6379 --num-gpus=2
trap 'ray stop' EXIT
python tune.py --samples 20
