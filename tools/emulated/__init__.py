"""Runs the libraries of kernels outside this process: of another CPU under qemu, and under tools that watch them."""
