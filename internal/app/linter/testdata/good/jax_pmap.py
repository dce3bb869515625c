import jax
import jax.numpy as jnp

n = jax.local_device_count()
keys = jax.random.split(jax.random.PRNGKey(0), n)
out = jax.pmap(lambda k: jax.random.normal(k, (3,)))(keys)
print(jax.devices("gpu")[n - 1], jnp.sum(out))
