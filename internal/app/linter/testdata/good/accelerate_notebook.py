from accelerate import notebook_launcher


def train():
    from accelerate import Accelerator

    print(Accelerator().device)


notebook_launcher(train, args=(), num_processes=2)
