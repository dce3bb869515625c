import torch

torch.cuda.set_per_process_memory_fraction(0.5, device=0)
torch.cuda.set_per_process_memory_fraction(0.5, device=1)
x = torch.empty(1024, device="cuda:1")
