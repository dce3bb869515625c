import os

os.environ["CUDA_VISIBLE_DEVICES"] = "2"

import onnxruntime

if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
    session = onnxruntime.InferenceSession("model.onnx", providers=["CUDAExecutionProvider"])
else:
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
