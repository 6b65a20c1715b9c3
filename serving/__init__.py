"""The model server: bundles behind TensorFlow Serving's and the Open Inference Protocol's interfaces."""
