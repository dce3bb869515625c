import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default="0")
args = parser.parse_args()
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu

import torch  # noqa: E402

print(torch.cuda.get_device_name(0))
