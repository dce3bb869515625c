#!/bin/bash
export XLA_CLIENT_MEM_FRACTION=.45
CUDA_VISIBLE_DEVICES=0 python learner.py &
CUDA_VISIBLE_DEVICES=0 python actor.py &
wait
