#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 fabric run --accelerator=cuda --devices=2 --strategy=fsdp train.py
