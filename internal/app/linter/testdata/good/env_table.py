import os

SETTINGS = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    "TOKENIZERS_PARALLELISM": "false",
}
for key, value in SETTINGS.items():
    os.environ[key] = value
os.environ.update(OMP_NUM_THREADS="8")
os.environ |= {"HF_HOME": "/data/hf"}

import torch

torch.cuda.set_device(3)
