import jax

jax.distributed.initialize()
print(jax.process_index(), jax.local_device_count())


@jax.jit
def step(x):
    return x * 2


step(jax.numpy.arange(8))
