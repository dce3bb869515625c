import os
from os import environ as e

os.environ["CUDA_VISIBLE_DEVICES"] = "0-3"  # want mask-range
e.setdefault("CUDA_DEVICE_ORDER", "pci_bus_id")  # want device-order-word
os.environ.update(XLA_PYTHON_CLIENT_PREALLOCATE="no")  # want jax-preallocate
os.putenv("NCCL_BLOCKING_WAIT", "1")  # want variable-old-name

import torch
