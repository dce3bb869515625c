import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
deepspeed.init_distributed()
model = torch.nn.Linear(8, 8)
engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
engine.backward(engine(torch.randn(4, 8).to(engine.device)).sum())
engine.step()
