import multiprocessing as mp
import os


def setup(queue):
    os.environ["CUDA_VISIBLE_DEVICES"] = str(queue.get())


def work(x):
    import torch

    return float(torch.ones(1, device="cuda") * x)


if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    queue = ctx.Queue()
    for gpu in range(2):
        queue.put(gpu)
    with ctx.Pool(2, initializer=setup, initargs=(queue,)) as pool:
        print(pool.map(work, range(8)))
