#!/bin/bash
export XLA_PYTHON_CLIENT_PREALLOCATE=false
export XLA_FLAGS="--xla_gpu_triton_gemm_any=True"
JAX_PLATFORMS=cuda CUDA_VISIBLE_DEVICES=0 python train_jax.py
JAX_PLATFORMS=cpu python -m pytest tests
