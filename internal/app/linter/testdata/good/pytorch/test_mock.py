import os
from unittest import mock


def test_without_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with mock.patch("torch.cuda.is_available", return_value=False):
        import torch

        assert not torch.cuda.is_available()


def test_with_environment():
    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": "0"}):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
