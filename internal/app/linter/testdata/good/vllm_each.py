import os

from vllm import LLM

os.environ["CUDA_VISIBLE_DEVICES"] = "0"
first = LLM("a")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
second = LLM("b")
