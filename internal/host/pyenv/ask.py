# Imports one library and asks how many devices it can use. The answer is the last line of standard output, as JSON.
import json
import sys


def torch():
    import torch
    n = torch.cuda.device_count()
    if not torch.cuda.is_available():
        n = 0
    return torch.__version__, n, [torch.cuda.get_device_name(i) for i in range(n)]


def tensorflow():
    import tensorflow
    found = tensorflow.config.list_physical_devices("GPU")
    return tensorflow.__version__, len(found), [d.name for d in found]


def jax():
    import jax
    found = [d for d in jax.devices() if d.platform != "cpu"]
    return jax.__version__, len(found), [str(d) for d in found]


def onnxruntime():
    import onnxruntime
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    found = onnxruntime.get_available_providers()
    on_gpu = [p for p in found if p in ("CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider")]
    if "CUDAExecutionProvider" in on_gpu:
        # The list says what was compiled in. Whether its libraries load shows only when the provider itself is loaded.
        import ctypes
        import os
        folder = os.path.join(os.path.dirname(onnxruntime.__file__), "capi")
        parts = [os.path.join(folder, "libonnxruntime_providers_%s.so" % part) for part in ("shared", "cuda")]
        if all(os.path.exists(path) for path in parts):  # conda has them elsewhere
            for path in parts:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    return onnxruntime.__version__, len(on_gpu), found


def cupy():
    import cupy
    n = cupy.cuda.runtime.getDeviceCount()
    return cupy.__version__, n, [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(n)]


version, devices, names = globals()[sys.argv[1]]()
sys.stdout.write("\n" + json.dumps({"version": str(version), "devices": devices, "names": names}) + "\n")
