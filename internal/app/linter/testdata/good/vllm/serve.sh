#!/bin/bash
CUDA_VISIBLE_DEVICES=0 vllm serve small/model --port 8000 --gpu-memory-utilization 0.45 &
CUDA_VISIBLE_DEVICES=0 vllm serve other/model --port 8001 --gpu_memory_utilization=0.45 &
CUDA_VISIBLE_DEVICES=1,2 vllm serve big/model --port 8002 --tensor-parallel-size 2 &
wait
