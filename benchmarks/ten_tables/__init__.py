"""Ten public tables through the three commands, beside pooled models in the clear."""
