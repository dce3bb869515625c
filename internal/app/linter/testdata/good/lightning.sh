#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gres=gpu:8
export NCCL_DEBUG=WARN
srun python fit.py --trainer.devices 8 --trainer.num_nodes 2 --trainer.strategy ddp
