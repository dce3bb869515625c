import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def training_step(self, batch, i):
        return self.layer(batch.to(self.device)).sum()


trainer = L.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=1)
