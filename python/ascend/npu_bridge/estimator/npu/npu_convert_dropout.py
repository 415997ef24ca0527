"""On an NPU, this import makes Keras use the NPU's dropout; here Keras uses TensorFlow's."""
