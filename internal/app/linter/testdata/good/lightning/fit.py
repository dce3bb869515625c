import lightning as L
import torch


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


if __name__ == "__main__":
    trainer = L.Trainer(accelerator="gpu", devices=[0, 1], strategy="ddp", precision="bf16-mixed")
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8))
