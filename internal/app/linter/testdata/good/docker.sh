#!/bin/bash
image=nvcr.io/nvidia/pytorch:24.10-py3
docker run -it --rm --gpus all "$image" nvidia-smi
docker run -d --name train --gpus device=1 --ulimit memlock=-1 "$image" python train.py
docker run --rm --gpus=1 "$image" python -c 'import torch; print(torch.cuda.device_count())'
docker run --rm --gpus "\"device=${GPUS}\"" "$image" python train.py
docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0,1 -e CUDA_VISIBLE_DEVICES=1 "$image" python train.py
docker run --rm --device nvidia.com/gpu=all "$image" python train.py
docker run --rm --gpus all --env-file settings.env "$image" bash -c 'CUDA_VISIBLE_DEVICES=3 python eval.py'
docker exec -e CUDA_VISIBLE_DEVICES=0 train python probe.py
podman run --rm --device nvidia.com/gpu=0 --security-opt=label=disable "$image" nvidia-smi
docker build --build-arg CUDA_VERSION=12.4 -t "$image" .
docker compose up --detach
