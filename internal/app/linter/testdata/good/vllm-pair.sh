#!/bin/bash
# A model and its embedding model share GPU 0.
CUDA_VISIBLE_DEVICES=0 vllm serve chat --port 8000 --gpu-memory-utilization 0.6 &
CUDA_VISIBLE_DEVICES=0 vllm serve embed --task embed --port 8001 --gpu-memory-utilization 0.3 &
CUDA_VISIBLE_DEVICES=1 vllm serve draft --port 8002 &
wait -n
