import os
import sys

if "--check" in sys.argv:
    import torch

    print(torch.cuda.is_available())
    sys.exit(0)

os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ["CUDA_VISIBLE_DEVICES"] = "0"

import torch

print(torch.cuda.get_device_name(0))
