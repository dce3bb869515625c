import os

if os.environ.get("CUDA_VISIBLE_DEVICES") is None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
if "MASTER_PORT" not in os.environ:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = "29500"
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(1)
