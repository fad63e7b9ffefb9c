"""`runtime-state.yaml`, which people edit: values are replaced one by one, the rest is kept."""
