#!/bin/bash
export HIP_VISIBLE_DEVICES=0,1
export HSA_OVERRIDE_GFX_VERSION=11.0.0
torchrun --standalone --nproc_per_node=2 train.py
ROCR_VISIBLE_DEVICES=1 python train.py
docker run --rm --device=/dev/kfd --device=/dev/dri --group-add video -e HIP_VISIBLE_DEVICES=0 rocm/pytorch python train.py
