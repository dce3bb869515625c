#!/bin/bash
# A script with the mistakes that people make with GPUs in containers.
docker run --rm --gpus "device=0,1" image python train.py # want gpus-list-unquoted
docker run --rm --gpus 0 image python train.py # want gpus-zero
docker run --rm --gpus 2 -e NVIDIA_VISIBLE_DEVICES=2,3 image python train.py # want gpus-beside-mask
docker run --rm --gpus device=3 -e CUDA_VISIBLE_DEVICES=3 image python train.py # want host-index-in-container
CUDA_VISIBLE_DEVICES=1 docker run --rm --gpus all image python train.py # want mask-outside-container
NVIDIA_VISIBLE_DEVICES=1 docker run --rm --runtime=nvidia image python train.py # want mask-outside-container
docker run --rm -e CUDA_VISIBLE_DEVICES=1 image python train.py # want cuda-variable-for-container
