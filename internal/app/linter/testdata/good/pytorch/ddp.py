import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = torch.nn.Linear(8, 8).cuda(local_rank)
    model = DDP(model, device_ids=[local_rank])
    model(torch.randn(4, 8, device=f"cuda:{local_rank}")).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
