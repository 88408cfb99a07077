"""Why salted hashes of identifiers hide nothing, and what a private set intersection does instead.

python examples/reverse_salted_hash.py [--space 1000000] [--customers 1000]
"""

import argparse
import secrets
import time

import numpy as np
import securevfl_psi as psi
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.group import Scalar
from securevfl_psi.hash_to_curve import hash_many_to_u
from securevfl_psi.oprf import finalise
from securevfl_psi.salted_hash import UnsafeSaltedHash, reverse_digests
from securevfl_psi.terms import Terms

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--space", type=int, default=1_000_000, help="telephone numbers that there could be")
parser.add_argument("--customers", type=int, default=1_000, help="those that the shop has")
options = parser.parse_args()

numbers = [f"+41795{n:06d}" for n in range(options.space)]
shop = [numbers[i] for i in np.random.default_rng(0).permutation(options.space)[: options.customers]]
print(f"A shop has {len(shop):,} customers, known by telephone number: {shop[0]}, {shop[1]}, …")

# The shop hashes each number with a secret salt. The bank needs the salt, too, or it could not compare.
salt = secrets.token_bytes(32)
sent = np.concatenate(list(UnsafeSaltedHash(psi.normalise(shop, psi.IdRules()), salt).digest_chunks()))
print(f"\n1. Salted hashes. The shop sends {len(sent):,} digests; the first: {sent[0].tobytes().hex()}")
started = time.perf_counter()
found = reverse_digests(sent, salt, numbers)
seconds = time.perf_counter() - started
print(f"   The bank hashes all {len(numbers):,} possible numbers: {len(found):,} customers read in {seconds:.1f} s.")
print(f"   That first digest is {found[0]}.")
if set(found.values()) != set(shop):
    raise SystemExit("the dictionary did not reverse all hashes")

# In a DH intersection the shop sends tokens: hashes of a number and of k·H(number), with a scalar k that never leaves
# it. The bank can compute H(number) and a·H(number) of every number, with any a of its own; without k none of their
# hashes is a token.
session = psi.Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag=psi.IdRules().tag())
tokens = np.concatenate(list(psi.DHServer(psi.normalise(shop, psi.IdRules()), session).token_chunks()))
tried = sorted(set(numbers[:20_000]) | set(shop))  # all customers are among them
column = psi.Identifiers.of_texts(tried)
hashed = hash_many_to_u(column, session.dst)
hits = set()
for points in (hashed, Scalar().multiply(hashed)):
    made = finalise(column, np.arange(len(tried)), points, session.dst, psi.TOKEN_BYTES, None)
    hits |= {row.tobytes() for row in tokens} & {row.tobytes() for row in made}
print(f"\n2. Diffie-Hellman. The shop sends {len(tokens):,} tokens; the first: {tokens[0].tobytes().hex()}")
print(
    f"   The bank tries {len(tried):,} numbers, all customers among them: {len(hits)} of {len(tokens):,} tokens match."
)
if hits:
    raise SystemExit("the dictionary reversed tokens")

# What remains: in a run with the shop, the bank can enter all numbers as its own. The shop sees how many it announces.
print(f"\n3. A bank that enters all {len(tried):,} numbers as its own, and a shop that accepts 5,000:")
greedy = Endpoint(tried, Terms(name="bank", peer="shop", role="receiver"))
careful = Endpoint(shop, Terms(name="shop", peer="bank", role="sender", max_set_size=5_000))
try:
    run_in_process(greedy, careful)
except psi.SetSizeError as error:
    print(f"   The shop refuses: {error}")
else:
    raise AssertionError("the shop accepted a set that is too large")
