#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
horovodrun -np 4 python train.py
horovodrun -np 8 -H a:4,b:4 python train.py
mpirun -np 16 -H a:4,b:4,c:4,d:4 -x NCCL_DEBUG=WARN -x CUDA_VISIBLE_DEVICES python train.py
