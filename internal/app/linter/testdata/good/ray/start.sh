#!/bin/sh
export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1
CUDA_VISIBLE_DEVICES=0,1 ray start --head --num-gpus=2 --port=6379
