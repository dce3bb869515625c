# a file that is odd, and not about GPUs
import nothing_that_exists
from . import gpu as cuda


def f(torch):
    torch.cuda = None
    return undefined, cuda.GPU


class CUDA:
    visible = "0-3"
