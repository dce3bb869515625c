import os

os.environ["CUDA_VISIBLE_DEVICES"] = "2"

from transformers import AutoModelForCausalLM, pipeline

model = AutoModelForCausalLM.from_pretrained("gpt2", device_map="auto")
pipe = pipeline("text-generation", model="gpt2", device=0)
