#!/bin/bash
export VLLM_WORKER_MULTIPROC_METHOD=spawn
CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --tensor-parallel-size 2 --gpu-memory-utilization 0.9 --port 8000
