import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
batch = torch.zeros(4, 2).to(accelerator.device)
accelerator.backward(model(batch).sum())
