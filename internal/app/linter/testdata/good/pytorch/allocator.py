import os

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

torch.cuda.set_per_process_memory_fraction(0.5)
torch.backends.cuda.matmul.allow_tf32 = True
torch.cuda.empty_cache()
