import argparse
import os

args = argparse.ArgumentParser().parse_args()
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus
args.gpus = [i for i in range(len(args.gpus.split(",")))]
args.rank = args.gpu
os.environ["CUDA_VISIBLE_DEVICES"] = str(args.gpu)
args.gpu = 0

import torch

torch.cuda.set_device(args.gpu)
model = torch.nn.DataParallel(torch.nn.Linear(2, 2), device_ids=args.gpus).to(args.gpus[0])
rank = int(input())
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
