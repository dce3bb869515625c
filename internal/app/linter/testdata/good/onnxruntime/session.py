import onnxruntime as ort

options = {"device_id": 0, "gpu_mem_limit": 2 * 1024 * 1024 * 1024, "arena_extend_strategy": "kSameAsRequested"}
session = ort.InferenceSession("model.onnx", providers=[("CUDAExecutionProvider", options), "CPUExecutionProvider"])
print(session.get_providers())
