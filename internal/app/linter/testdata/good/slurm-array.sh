#!/bin/bash
#SBATCH --array=0-7%4
#SBATCH --gres=gpu:1
#SBATCH --mem=32G

echo "on $(hostname), GPUs: $CUDA_VISIBLE_DEVICES"
nvidia-smi -L
seeds=(11 22 33 44 55 66 77 88)
srun python sweep.py --seed "${seeds[$SLURM_ARRAY_TASK_ID]}"
