import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("some/model", torch_dtype=torch.bfloat16, device_map="auto", max_memory={0: "20GiB", 1: "20GiB", "cpu": "64GiB"})
print(model.hf_device_map)
