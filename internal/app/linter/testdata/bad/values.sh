#!/bin/bash
export CUDA_VISIBLE_DEVICES=0-3  # want mask-range
export CUDA_VISIBLE_DEVICES="0 1"  # want mask-separators
export CUDA_VISIBLE_DEVICES='"0"'  # want mask-quotes
export CUDA_VISIBLE_DEVICES=1,1  # want mask-duplicate
export CUDA_VISIBLE_DEVICES=0,GPU-9942190a  # want mask-mixed
export HIP_VISIBLE_DEVICES="0, 1"  # want mask-spaces
export ASCEND_RT_VISIBLE_DEVICES=1,0  # want mask-order
export CUDA_VISIBLE_DEVICES=cuda:0  # want mask-not-a-device
export CUDA_DEVICE_ORDER=PCI_BUS  # want device-order-word
export CUDA_VISIBLE_DEVICE=0  # want variable-misspelt
env CUDA_VISIBLE_DEVICES=0-1 python train.py  # want mask-range
CUDA_VISIBLE_DEVICES=0-1 XLA_CLIENT_MEM_FRACTION=40 python train.py  # want mask-range jax-fraction
