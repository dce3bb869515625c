# Run by the job's own interpreter, in a process of its own: names of frameworks in, one marked line of JSON out.
import sys

# The working folder is no place of modules for a program that was started as a file.
sys.path[:] = [place for place in sys.path if place]

import json


def pytorch():
    import torch

    cuda, hip = torch.version.cuda, getattr(torch.version, "hip", None)
    xpu = getattr(torch, "xpu", None)
    said = {"version": torch.__version__, "devices": []}
    if not cuda and not hip:
        other = xpu is not None and xpu.is_available()
        said.update(built="XPU" if other else "CPU", gpu="unknown" if other else "no")
        return said
    said["built"] = "CUDA " + cuda if cuda else "ROCm " + hip
    said["gpu"] = "yes" if torch.cuda.is_available() else "no"
    if said["gpu"] == "no":
        try:
            torch.cuda.init()
        except Exception as why:
            said["error"] = str(why)
        return said
    for i in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(i)
        uuid = getattr(device, "uuid", None)
        said["devices"].append({"name": device.name, "uuid": "GPU-%s" % uuid if uuid and cuda else ""})
    return said


def tensorflow():
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    built = "CPU"
    if build.get("is_cuda_build"):
        built = "CUDA " + str(build.get("cuda_version", ""))
    elif build.get("is_rocm_build"):
        built = "ROCm " + str(build.get("rocm_version", ""))
    devices = []
    for device in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(device)
        devices.append({"name": details.get("device_name", device.name), "uuid": ""})
    return {"version": tf.__version__, "built": built.strip(), "gpu": "yes" if devices else "no", "devices": devices}


def jax():
    import importlib.util
    import jax
    import jaxlib

    def plugin():
        names = ["jax_cuda%d_plugin" % n for n in range(11, 20)] + ["jax_rocm%d_plugin" % n for n in (60, 7, 70)]
        for name in names + ["jaxlib.cuda._versions", "jaxlib.rocm"]:
            try:
                if importlib.util.find_spec(name):
                    return name
            except ImportError:
                pass
        return ""

    found = plugin()
    said = {"version": jax.__version__, "built": "", "devices": []}
    if not found and "cuda" not in jaxlib.__version__:
        said.update(built="CPU", gpu="no")
        return said
    said["built"] = "ROCm" if "rocm" in found else "CUDA"
    said["devices"] = [{"name": d.device_kind, "uuid": ""} for d in jax.devices() if d.platform in ("gpu", "cuda", "rocm")]
    said["gpu"] = "yes" if said["devices"] else "no"
    return said


def onnxruntime():
    import onnxruntime as ort

    names = ("CUDAExecutionProvider", "TensorrtExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider",
             "NvTensorRTRTXExecutionProvider", "OpenVINOExecutionProvider", "DmlExecutionProvider", "CANNExecutionProvider",
             "WebGpuExecutionProvider")
    usable = [p for p in ort.get_available_providers() if p in names]
    built = ", ".join(p.replace("ExecutionProvider", "") for p in usable) or "CPU"
    # A provider in the package may still fail to load: only the session of the job knows.
    return {"version": ort.__version__, "built": built, "gpu": "unknown" if usable else "no", "devices": []}


def cupy():
    import cupy

    runtime = cupy.cuda.runtime
    said = {"version": cupy.__version__, "devices": []}
    version = runtime.runtimeGetVersion()
    said["built"] = "ROCm" if runtime.is_hip else "CUDA %d.%d" % (version // 1000, version % 1000 // 10)
    try:
        count = runtime.getDeviceCount()
    except Exception as why:
        said.update(gpu="no", error=str(why))
        return said
    for i in range(count):
        name = runtime.getDeviceProperties(i)["name"]
        said["devices"].append({"name": name.decode(errors="replace"), "uuid": ""})
    said["gpu"] = "yes" if count else "no"
    return said


def llama():
    import llama_cpp

    usable = llama_cpp.llama_supports_gpu_offload()
    return {"version": llama_cpp.__version__, "built": "" if usable else "CPU", "gpu": "unknown" if usable else "no", "devices": []}


known = {"pytorch": pytorch, "tensorflow": tensorflow, "jax": jax, "onnxruntime": onnxruntime, "cupy": cupy, "llama.cpp": llama}
answer = {}
for word in sys.argv[1:]:
    try:
        answer[word] = known[word]()
    except BaseException as why:
        answer[word] = {"gpu": "unknown", "error": "%s: %s" % (type(why).__name__, why)}
sys.stdout.write("\ngpuard-witness %s\n" % json.dumps(answer))
sys.stdout.flush()
