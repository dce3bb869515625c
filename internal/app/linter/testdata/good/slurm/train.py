import os

import torch
import torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
local = int(os.environ["SLURM_LOCALID"])
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["SLURM_NTASKS"]))
torch.cuda.set_device(local % torch.cuda.device_count())
