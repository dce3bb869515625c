import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

import pytorch_lightning as pl
from accelerate import notebook_launcher
from vllm import LLM


def work():
    pass


notebook_launcher(work, num_processes=4)  # want more-processes-than-gpus
pl.Trainer(accelerator="gpu", devices=3)  # want more-processes-than-gpus
pl.Trainer(accelerator="gpu", devices=2)
LLM("m", tensor_parallel_size=4)  # want more-processes-than-gpus
