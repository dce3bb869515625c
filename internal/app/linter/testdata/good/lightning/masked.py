import os

os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"

import pytorch_lightning as pl

trainer = pl.Trainer(accelerator="gpu", devices=2)
