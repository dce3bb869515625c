import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"

from vllm import LLM, SamplingParams

llm = LLM("facebook/opt-125m", tensor_parallel_size=2, gpu_memory_utilization=0.85)
print(llm.generate(["Hello"], SamplingParams(max_tokens=8)))
