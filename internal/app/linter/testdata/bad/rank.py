import os

rank = int(os.environ.get("SLURM_LOCALID", "0"))
os.environ["CUDA_VISIBLE_DEVICES"] = "%d" % rank

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

torch.cuda.set_device(rank)  # want rank-with-own-mask
model = DDP(torch.nn.Linear(2, 2).to(rank), device_ids=[rank])
