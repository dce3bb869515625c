import torch

model = torch.nn.Linear(2, 2).cuda()
scaler = torch.amp.GradScaler("cuda")
with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
    loss = model(torch.zeros(1, 2, device="cuda")).sum()
scaler.scale(loss).backward()
