#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus=2
#SBATCH --partition=a100
export NVIDIA_DRIVER_CAPABILITIES=compute,utility
srun --container-image=nvcr.io#nvidia/pytorch:24.10-py3 --container-mounts="$PWD:/code" \
  torchrun --standalone --nproc_per_node=2 /code/train.py
