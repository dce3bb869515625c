import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
strategy = tf.distribute.MirroredStrategy(["/gpu:0", "/gpu:1"])
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
with tf.device("/GPU:1"):
    x = tf.random.normal([2, 2])
