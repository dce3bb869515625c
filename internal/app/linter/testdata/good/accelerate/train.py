import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
x = torch.randn(4, 8, device=accelerator.device)
accelerator.backward(model(x).sum())
optimizer.step()
accelerator.print(accelerator.local_process_index)
