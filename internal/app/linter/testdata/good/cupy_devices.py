import cupy as cp

for i in range(cp.cuda.runtime.getDeviceCount()):
    with cp.cuda.Device(i):
        print(cp.arange(3).sum())
