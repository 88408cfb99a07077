"""An additive model on shares: parties deal contrasts and capped parts; each opens the noisy sums of its columns."""
