"""A weight update: new weights from host memory to the inference engines."""
