import gc

import torch
from vllm import LLM


def answer(name, question):
    llm = LLM(name)
    return llm.generate([question])


first = LLM("a", gpu_memory_utilization=0.4)
print(first.generate(["x"]))
first = None
gc.collect()
torch.cuda.empty_cache()
second = LLM("b", gpu_memory_utilization=0.9)
print(answer("c", "y"))
