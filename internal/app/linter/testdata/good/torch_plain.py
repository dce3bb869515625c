import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(nn.Linear(4, 4), device_ids=[0, 1]).to(device)
else:
    model = nn.Linear(4, 4).to(device)
for name in range(torch.cuda.device_count()):
    print(torch.cuda.get_device_name(name), torch.cuda.mem_get_info(name))
