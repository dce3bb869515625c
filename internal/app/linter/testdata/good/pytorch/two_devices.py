import torch

first = torch.nn.Linear(8, 8).to("cuda:0")
second = torch.nn.Linear(8, 8).to("cuda:1")
x = torch.randn(4, 8).to("cuda:0")
print(second(first(x).to("cuda:1")))
