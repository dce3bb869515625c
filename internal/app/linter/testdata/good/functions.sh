#!/bin/bash
usage() {
  cat <<'EOF'
usage: functions.sh GPU CONFIG
  CUDA_VISIBLE_DEVICES=1 functions.sh ...
  docker run --gpus device=0,1 is not for us
EOF
}

train() {
  local gpu=$1 config=$2
  export CUDA_VISIBLE_DEVICES=$gpu
  python train.py --config "$config"
}

[ $# -eq 2 ] || { usage >&2; exit 2; }
train "$@"
