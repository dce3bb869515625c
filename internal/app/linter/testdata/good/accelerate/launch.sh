#!/bin/bash
accelerate launch --multi_gpu --num_processes 2 --gpu_ids 0,1 --main_process_port 0 train.py
CUDA_VISIBLE_DEVICES=2,3 accelerate launch --num-processes=2 --main-process-port=0 train.py
