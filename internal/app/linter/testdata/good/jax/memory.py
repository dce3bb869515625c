import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["XLA_CLIENT_MEM_FRACTION"] = ".40"

import jax
import jax.numpy as jnp

print(jax.devices(), jnp.ones(3))
