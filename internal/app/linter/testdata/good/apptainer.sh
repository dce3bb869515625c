#!/bin/bash
#SBATCH --gres=gpu:2
export APPTAINERENV_NCCL_DEBUG=WARN
apptainer exec --nv --bind /scratch pytorch.sif torchrun --standalone --nproc_per_node=2 train.py
export NVIDIA_VISIBLE_DEVICES=1
singularity exec --nvccli pytorch.sif python train.py
