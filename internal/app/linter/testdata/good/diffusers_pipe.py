import torch
from diffusers import DiffusionPipeline

pipe = DiffusionPipeline.from_pretrained("stabilityai/sdxl-turbo", torch_dtype=torch.float16).to("cuda")
pipe.enable_model_cpu_offload(gpu_id=0)
