#!/bin/bash
cd "$(dirname "$0")" || exit
CUDA_VISIBLE_DEVICES=1 timeout 2h nice -n 10 python serve_onnx.py --provider CUDAExecutionProvider --device-id 0 2>&1 | tee serve.log
