import os
import subprocess
import sys

import torch


def launch(gpu, script):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=str(gpu))
    return subprocess.Popen([sys.executable, script], env=env)


def launch_copy(gpu, script):
    env = os.environ.copy()
    env.update({"CUDA_VISIBLE_DEVICES": str(gpu), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    return subprocess.run(["python", script], env=env, check=True)


def launch_merge(gpu, script):
    return subprocess.call(["python", script], env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)})


if torch.cuda.is_available():
    waiting = [launch(i, "eval.py") for i in range(torch.cuda.device_count())]
    for w in waiting:
        w.wait()
