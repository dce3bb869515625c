import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"

from vllm import LLM, SamplingParams

if __name__ == "__main__":
    llm = LLM("some/model", tensor_parallel_size=2, gpu_memory_utilization=0.9)
    print(llm.generate(["hello"], SamplingParams(max_tokens=8)))
