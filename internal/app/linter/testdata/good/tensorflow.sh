#!/bin/bash
export TF_FORCE_GPU_ALLOW_GROWTH=true TF_CPP_MIN_LOG_LEVEL=1
CUDA_VISIBLE_DEVICES=0 python -m official.vision.train --experiment=resnet_imagenet
CUDA_VISIBLE_DEVICES="" python -c 'import tensorflow as tf; print(tf.config.list_physical_devices())'
CUDA_VISIBLE_DEVICES=-1 python export.py && gsutil cp -r export gs://models/
