#!/bin/bash
accelerate launch --num_machines 2 --num_processes 16 --machine_rank "$RANK" \
  --main_process_ip "$HEAD" --main_process_port 29500 train.py
