from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model


def loop():
    import torch

    model = prepare_model(torch.nn.Linear(4, 4))
    model(torch.randn(2, 4, device=get_device()))


TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=4, use_gpu=True)).fit()
