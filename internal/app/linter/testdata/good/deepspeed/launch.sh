#!/bin/bash
deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config ds.json
deepspeed --include localhost:0,1 train.py --deepspeed_config ds.json
