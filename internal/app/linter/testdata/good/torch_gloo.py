import os
import torch.distributed as dist
import torch.multiprocessing as mp

os.environ["CUDA_VISIBLE_DEVICES"] = "0"


def work(rank):
    dist.init_process_group("gloo", init_method="file:///tmp/rendezvous", rank=rank, world_size=8)


if __name__ == "__main__":
    mp.spawn(work, nprocs=8)
