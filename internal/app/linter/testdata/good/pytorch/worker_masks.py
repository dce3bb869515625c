import multiprocessing as mp
import os


def work(gpu, items):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpu)
    import torch

    model = torch.nn.Linear(4, 4).cuda()
    return [model(torch.tensor(i, device="cuda")) for i in items]


if __name__ == "__main__":
    context = mp.get_context("spawn")
    jobs = [context.Process(target=work, args=(gpu, [])) for gpu in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
