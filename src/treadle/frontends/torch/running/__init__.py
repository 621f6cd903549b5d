"""What runs a compiled graph on torch tensors: whose memory, where it lies, kernels and calls."""
