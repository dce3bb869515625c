import jax

jax.distributed.initialize()
print(jax.process_index(), jax.local_devices()[0])
