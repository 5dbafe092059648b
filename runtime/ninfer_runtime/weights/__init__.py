"""From stored objects to tensors on the device, in the order the model wants them."""
