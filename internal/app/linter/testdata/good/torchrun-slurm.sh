#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out

set -e
module purge
module load cuda/12.4
source "$HOME/venv/bin/activate"

nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
head=${nodes[0]}
head_ip=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address)
export NCCL_SOCKET_IFNAME=ib0
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1

srun torchrun \
  --nnodes "$SLURM_NNODES" \
  --nproc_per_node 8 \
  --rdzv_id "$SLURM_JOB_ID" \
  --rdzv_backend c10d \
  --rdzv_endpoint "$head_ip:29500" \
  train.py --config configs/base.yaml
