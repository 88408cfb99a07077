"""Schemes on lattices: BFV (exact) and CKKS (approximate), with SEAL as the engine."""

from securevfl_crypto.rlwe.bfv import BFV
from securevfl_crypto.rlwe.ckks import CKKS
from securevfl_crypto.rlwe.keys import RlwePublicKey, RlweSecretKey

__all__ = ["BFV", "CKKS", "RlwePublicKey", "RlweSecretKey"]
