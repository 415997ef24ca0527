"""On an NPU, importing this makes Keras use the NPU's dropout. Here it has no effect."""
