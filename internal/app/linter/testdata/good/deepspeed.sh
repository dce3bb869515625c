#!/bin/bash
deepspeed --include localhost:2,3 train.py --deepspeed --deepspeed_config ds.json
CUDA_VISIBLE_DEVICES=2,3 deepspeed train.py --deepspeed_config ds.json
deepspeed --num_gpus=8 --module project.train
deepspeed --hostfile=hosts --num_nodes 2 --num_gpus 8 --master_port 29600 train.py
ds_report
