import os
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

os.environ.setdefault("NCCL_SOCKET_IFNAME", "eth0")
torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = FSDP(torch.nn.Linear(8, 8).cuda())
