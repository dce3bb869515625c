import os

from joblib import Parallel, delayed


def fit(gpu):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch

    return torch.cuda.get_device_name(0)


print(Parallel(n_jobs=2)(delayed(fit)(g) for g in (0, 1)))
