import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8, device=device)).sum()
        loss.backward()
        optimizer.step()
    if use_cuda:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
