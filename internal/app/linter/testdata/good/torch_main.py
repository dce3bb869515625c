"""A training script with everything in its place."""
import argparse
import os


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", default="0")
    return parser.parse_args()


def main():
    args = parse()
    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    import torch

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    model = torch.nn.Linear(8, 2).to(device)
    print(model(torch.zeros(1, 8, device=device)))


if __name__ == "__main__":
    main()
