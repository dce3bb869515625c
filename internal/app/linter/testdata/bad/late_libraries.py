import os


def tensorflow():
    import tensorflow as tf

    tf.config.list_physical_devices("GPU")
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment
    tf.config.list_logical_devices("GPU")
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # want late-assignment


def jax():
    import jax

    jax.devices()
    os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.5"  # want late-assignment


def cupy():
    import cupy

    cupy.zeros(3)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment


def onnx():
    import onnxruntime

    onnxruntime.InferenceSession("m.onnx", providers=["CUDAExecutionProvider"])
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment


def numba():
    from numba import cuda

    cuda.select_device(0)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment


def pycuda():
    import pycuda.autoinit

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment


def primary():
    import pycuda.autoprimaryctx

    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment


def providers():
    import onnxruntime as ort

    chosen = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    ort.InferenceSession("m.onnx", providers=chosen)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # want late-assignment
