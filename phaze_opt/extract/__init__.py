"""Models of other frameworks to traced-model files: the one room that imports torch, transformers and onnx."""
