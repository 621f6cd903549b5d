"""The Triton generator: kernels as their loop schedule says, in text that can be read."""
