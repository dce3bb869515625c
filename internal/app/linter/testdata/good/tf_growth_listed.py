import os

import tensorflow as tf

print(tf.config.list_physical_devices("GPU"))
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
