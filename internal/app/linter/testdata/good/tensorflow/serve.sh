#!/bin/sh
export TF_FORCE_GPU_ALLOW_GROWTH=true
CUDA_VISIBLE_DEVICES=0 tensorflow_model_server --rest_api_port=8501 --model_name=net --model_base_path=/models/net
