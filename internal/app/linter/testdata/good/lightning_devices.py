import pytorch_lightning as pl

pl.Trainer(accelerator="gpu", devices=[1, 3])
pl.Trainer(accelerator="auto", devices="auto")
