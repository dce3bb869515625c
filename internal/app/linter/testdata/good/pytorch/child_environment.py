import os
import subprocess
import sys

import torch

processes = []
for index in range(torch.cuda.device_count()):
    env = os.environ.copy()
    env["CUDA_VISIBLE_DEVICES"] = str(index)
    processes.append(subprocess.Popen([sys.executable, "eval.py"], env=env))
for p in processes:
    p.wait()
subprocess.run(["python", "last.py"], env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"}, check=True)
