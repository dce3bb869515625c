import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
deepspeed.init_distributed()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
engine, _, _, _ = deepspeed.initialize(args=args, model=torch.nn.Linear(2, 2))
