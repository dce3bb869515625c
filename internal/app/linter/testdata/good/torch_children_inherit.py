import os
import subprocess

import torch

print("GPUs:", torch.cuda.device_count(), torch.cuda.is_available())
for gpu in range(torch.cuda.device_count()):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    subprocess.Popen(["python", "sweep.py", "--seed", str(gpu)])
