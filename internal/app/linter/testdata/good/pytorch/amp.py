import torch

scaler = torch.amp.GradScaler("cuda")
model = torch.nn.Linear(4, 4).to("cuda")
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    loss = model(torch.randn(2, 4, device="cuda")).mean()
scaler.scale(loss).backward()
