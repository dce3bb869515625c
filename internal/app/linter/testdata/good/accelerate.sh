#!/bin/bash
export ACCELERATE_MIXED_PRECISION=bf16
CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch \
  --multi_gpu \
  --num_processes=4 \
  --main_process_port 0 \
  run_glue.py --model_name_or_path bert-base-cased
accelerate config default
accelerate env
accelerate launch --config_file fsdp.yaml run_clm.py
accelerate launch --cpu --num_processes 8 run_clm.py
