# A client of Jupyter that does with one kernel what each line of its input says, and answers with one line of JSON.
import json
import sys
import time

from jupyter_client import KernelManager

PATIENCE = 120  # seconds, for what takes one or two

# Sockets are files in the working folder: any free TCP port that it chooses may be taken by the time that the kernel asks for it.
km = KernelManager(kernel_name=sys.argv[1], transport="ipc")
kc = None


def connect():
    global kc
    if kc is not None:
        kc.stop_channels()
    kc = km.client()
    kc.start_channels()
    kc.wait_for_ready(timeout=PATIENCE)


def collect(asked, until):
    """What the kernel says about one request, until that returns something."""
    said = ""
    end = time.time() + PATIENCE
    while time.time() < end:
        message = kc.get_iopub_msg(timeout=PATIENCE)
        if message["parent_header"].get("msg_id") != asked:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            said += content["text"]
        elif kind == "error":
            said += content["ename"]
        if until(kind, content, said):
            return said
    raise TimeoutError(said)


def idle(kind, content, said):
    return kind == "status" and content["execution_state"] == "idle"


def interrupted():
    asked = kc.execute("import time\nprint('on', flush=True)\ntime.sleep(600)")
    collect(asked, lambda kind, content, said: "on" in said)
    km.interrupt_kernel()
    return collect(asked, idle)


for line in sys.stdin:
    what, _, code = line.strip().partition(" ")
    answer = ""
    if what == "start":
        km.start_kernel()
        connect()
    elif what == "run":
        answer = collect(kc.execute(code), idle).strip()
    elif what == "interrupt":
        answer = interrupted()
    elif what == "restart":
        km.restart_kernel(now=code == "now")
        connect()
    elif what == "revive":  # what a Jupyter server does when a kernel died
        while km.is_alive():
            time.sleep(0.05)
        km.restart_kernel(now=True)
        connect()
    elif what == "shutdown":
        kc.stop_channels()
        km.shutdown_kernel(now=code == "now")
    print(json.dumps(answer), flush=True)
