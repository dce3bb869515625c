import os

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")

import onnxruntime as ort

providers = [("CUDAExecutionProvider", {"device_id": 0, "gpu_mem_limit": 2 << 30}), "CPUExecutionProvider"]
session = ort.InferenceSession("model.onnx", providers=providers)
print(session.get_providers())
