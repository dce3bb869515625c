import random

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def seed(worker_id):
    np.random.seed(worker_id)
    random.seed(worker_id)


loader = DataLoader(TensorDataset(torch.zeros(8, 2)), num_workers=4, pin_memory=True, worker_init_fn=seed)
for (batch,) in loader:
    batch.to("cuda", non_blocking=True)
