#!/bin/bash
docker run --rm --gpus all image python train.py
docker run --rm --gpus '"device=0,1"' image python train.py
docker run --rm --gpus device=0 -e NCCL_DEBUG=WARN image python train.py
docker run --rm --gpus 2 --shm-size=8g --ulimit memlock=-1 image torchrun --nproc-per-node 2 train.py
podman run --rm --device nvidia.com/gpu=0 image python train.py
docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0,1 image python train.py
