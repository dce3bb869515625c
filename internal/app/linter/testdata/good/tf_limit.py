import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_logical_device_configuration(gpus[0], [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])
    tf.config.set_visible_devices(gpus[0], "GPU")
