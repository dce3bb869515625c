import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
from vllm import LLM

llm = LLM("m", tensor_parallel_size=8, distributed_executor_backend="ray")
