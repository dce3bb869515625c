import os

import torch

job = int(os.environ.get("SLURM_ARRAY_TASK_ID", 0))
local = int(os.environ.get("SLURM_LOCALID", 0))
print(job, os.environ.get("CUDA_VISIBLE_DEVICES"))
device = torch.device("cuda", local % max(1, torch.cuda.device_count()))
