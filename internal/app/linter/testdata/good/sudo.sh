#!/bin/bash
export CUDA_VISIBLE_DEVICES=0
sudo apt-get install -y nvidia-container-toolkit
sudo nvidia-smi --persistence-mode=1
sudo docker run --rm --gpus device=0 image nvidia-smi
sudo -E env PATH="$PATH" python bench.py
sudo --user=trainer --preserve-env=CUDA_VISIBLE_DEVICES python train.py
python train.py
