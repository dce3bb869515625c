import os
import posix
from os import environ as e, putenv

import torch as t

x = t.zeros(3).to("cuda")
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # want late-assignment
e["CUDA_VISIBLE_DEVICES"] = "1"  # want late-assignment
e.update({"CUDA_VISIBLE_DEVICES": "1"})  # want late-assignment
e.update(CUDA_VISIBLE_DEVICES="1")  # want late-assignment
e.update([("CUDA_VISIBLE_DEVICES", "1")])  # want late-assignment
e.setdefault("CUDA_VISIBLE_DEVICES", "1")  # want late-assignment
e |= {"CUDA_VISIBLE_DEVICES": "1"}  # want late-assignment
e.__setitem__("CUDA_VISIBLE_DEVICES", "1")  # want late-assignment
e.pop("HIP_VISIBLE_DEVICES", None)  # want late-assignment
del e["HIP_VISIBLE_DEVICES"]  # want late-assignment
putenv("CUDA_VISIBLE_DEVICES", "1")  # want late-assignment
posix.putenv("CUDA_VISIBLE_DEVICES", "1")  # want late-assignment
os.unsetenv("HIP_VISIBLE_DEVICES")  # want late-assignment
getattr(os, "environ")["CUDA_VISIBLE_DEVICES"] = "1"  # want late-assignment
__import__("os").environ["CUDA_VISIBLE_DEVICES"] = "1"  # want late-assignment
os.environb[b"CUDA_VISIBLE_DEVICES"] = b"1"  # want late-assignment
NAME = "CUDA_VISIBLE_DEVICES"
os.environ[NAME], os.environ["OTHER"] = "1", "2"  # want late-assignment
for key, value in {"CUDA_VISIBLE_DEVICES": "1"}.items():
    os.environ[key] = value  # want late-assignment
table = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
os.environ.update(table)  # want late-assignment
alias = os.environ
alias["CUDA_VISIBLE_DEVICES"] = "1"  # want late-assignment
os.environ["CUDA_VISIBLE_DEVICES"]: str = "1"  # want late-assignment
copied = os.environ.copy()
copied["CUDA_VISIBLE_DEVICES"] = "1"
