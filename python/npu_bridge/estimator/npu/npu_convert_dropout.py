"""Importing this makes Keras's Dropout use the NPU's. Here it is TensorFlow's own already."""
