#!/bin/bash
# A script with the mistakes that shells allow.
set -euo pipefail

CUDA_DEVICE_ORDER=PCI_BUS_ID # want variable-not-exported
(export HIP_VISIBLE_DEVICES=1) # want variable-lost-in-subshell
python prepare.py

CUDA_VISIBLE_DEVICES=1 sudo python train.py # want sudo-drops-variable
CUDA_VISIBLE_DEVICES=1 cd project && python eval.py # want prefix-on-first-command
set CUDA_VISIBLE_DEVICES=1 # want foreign-assignment
