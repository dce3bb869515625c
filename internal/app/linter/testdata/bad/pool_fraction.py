import multiprocessing as mp


def work(i):
    import torch

    torch.cuda.set_per_process_memory_fraction(0.5)  # want fractions-over-one
    return torch.zeros(1).cuda()


if __name__ == "__main__":
    with mp.Pool(processes=3) as pool:
        pool.map(work, range(3))
