#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH -c 16

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((12000 + SLURM_JOB_ID % 10000))
export WORLD_SIZE=$SLURM_NTASKS

srun --cpu-bind=cores bash -c '
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
  python -u train.py --data /scratch/imagenet
'
