FROM python:3.12-slim
RUN pip install --no-cache-dir onnxruntime
ENV CUDA_VISIBLE_DEVICES=-1
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
CMD python tokenize.py
