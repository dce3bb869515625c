#!/bin/bash
use_gpu() {
  export CUDA_VISIBLE_DEVICES="$1"
}
use_gpu 0
python train.py
unset CUDA_VISIBLE_DEVICES
if [ -n "${DEBUG:-}" ]; then
  export CUDA_LAUNCH_BLOCKING=0 NCCL_DEBUG=WARN
fi
python eval.py && CUDA_VISIBLE_DEVICES=1 python export.py
