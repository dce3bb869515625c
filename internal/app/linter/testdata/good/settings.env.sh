# shellcheck shell=bash
# Read with: set -a; . settings.env.sh; set +a
CUDA_VISIBLE_DEVICES=0,1
CUDA_DEVICE_ORDER=PCI_BUS_ID
HF_HOME=/data/hf
