#!/bin/bash
#SBATCH --gres=gpu:4
#SBATCH --ntasks=4

for i in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$i python fold.py --fold "$i" > "fold$i.log" 2>&1 &
done
wait
