#!/bin/bash
#SBATCH --job-name=mistakes
#SBATCH --gpus-per-node=a100:2
# A batch script with the mistakes that people make with launchers.
module load cuda
source ~/venv/bin/activate

srun torchrun --standalone --nproc_per_node=4 train.py # want more-processes-than-gpus
CUDA_VISIBLE_DEVICES=0 accelerate launch --num_processes 2 train.py # want more-processes-than-gpus
CUDA_VISIBLE_DEVICES=1 deepspeed --num_gpus 1 train.py # want deepspeed-ignores-mask
torchrun --nproc-per-node=2 --master_port=29500 train.py # want master-port-fixed
CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python eval.py --device cuda:$SLURM_LOCALID # want rank-with-own-mask
CUDA_VISIBLE_DEVICES=1 python eval.py --device cuda:1 # want device-beyond-mask
vllm serve one --port 8001 &
vllm serve two --port 8002 & # want fractions-over-one
wait
conda env config vars set CUDA_VISIBLE_DEVICES=0 # want conda-variable-stays-empty
