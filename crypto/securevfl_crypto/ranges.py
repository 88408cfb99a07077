"""How large the integers at a sealed cut can become, and how they are laid out in plaintexts. Decided before
anything is encrypted."""

from __future__ import annotations

from dataclasses import dataclass

from securevfl_crypto.errors import OverflowRefused

__all__ = ["Layout", "SealedRange"]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a matrix lies in plaintexts: `group` columns side by side, `per` rows one after the other.

    Attributes:
        slot: bits of one signed slot.
        group: columns of one row in one plaintext.
        per: rows in one plaintext (1 where a row needs several plaintexts).
        groups: plaintexts that one row needs.
    """

    slot: int
    group: int
    per: int
    groups: int

    def plaintexts(self, rows: int) -> int:
        """Plaintexts of a matrix of `rows` rows."""
        return -(-rows // self.per) * self.groups


@dataclass(frozen=True, kw_only=True)
class SealedRange:
    """Bits of everything at one passive party's part of a sealed cut.

    Activations x (B, d) are integers with `fx` fractional bits, below 2^(fx + x_int_bits); steps S = η ∂L/∂z (B, h)
    have `fs`, below 2^s_bits. Weights have fw = fx + fs, so that ``W − xᵀS`` needs no rounding, and z = x W has fx
    + fw.

    Attributes:
        batch: most rows in one training batch.
        width_in: d.
        width_out: h.
        fx: see above; likewise the next three.
        fs: fractional bits of S.
        x_int_bits: bits of an activation before the point.
        s_bits: bits of S's integers.
        w_int_bits: weights are assumed below 2^w_int_bits; nobody can check, z is checked instead.
        z_int_bits: z has to stay below a quarter of 2^z_int_bits.
        sigma: statistical security of the masks of shares, in bits.
    """

    batch: int
    width_in: int
    width_out: int
    fx: int
    fs: int
    x_int_bits: int
    s_bits: int
    w_int_bits: int = 4
    z_int_bits: int = 10
    sigma: int = 40

    @property
    def x_bits(self) -> int:
        """Magnitude of an activation's integer."""
        return self.fx + self.x_int_bits

    @property
    def w_bits(self) -> int:
        """Magnitude of a weight's integer."""
        return self.fx + self.fs + self.w_int_bits

    @property
    def share_bits(self) -> int:
        """Magnitude of a fresh share U: the weight's and the statistical security."""
        return self.w_bits + self.sigma

    @property
    def share_bytes(self) -> int:
        """Bytes of one share, or of one change of a share, on the wire."""
        return (max(self.share_bits, self.phi_bits) + 3 + 7) // 8

    @property
    def phi_bits(self) -> int:
        """Magnitude of the mask Φ of a weight gradient."""
        return self.x_bits + self.s_bits + self.batch.bit_length() + self.sigma

    @property
    def input_bits(self) -> int:
        """Magnitude of S Wᵀ, the gradient at the activations. Its mask M is uniform modulo n and needs no room."""
        return self.s_bits + self.w_bits + self.width_out.bit_length()

    def forward(self, key_bits: int) -> Layout:
        """Layout of z: masks are uniform over the whole plaintext, so a slot only has to hold z.

        Raises:
            OverflowRefused: one value does not fit in a plaintext.
        """
        return self._layout(self.fx + self.fx + self.fs + self.z_int_bits + 1, self.width_out, key_bits, "z")

    def backward(self, key_bits: int) -> Layout:
        """Layout of S and of xᵀS − Φ, one row in a plaintext (or several plaintexts in a row)."""
        layout = self._layout(self.phi_bits + 2, self.width_out, key_bits, "a masked weight gradient")
        return Layout(slot=layout.slot, group=layout.group, per=1, groups=layout.groups)

    def by_sample(self, key_bits: int) -> Layout:
        """Layout of S by columns, several rows of the batch side by side, for S Wᵀ under masks modulo n."""
        return self._layout(self.input_bits + 2, self.batch, key_bits, "a gradient at the activations")

    def _layout(self, slot: int, columns: int, key_bits: int, what: str) -> Layout:
        room = (key_bits - 2) // slot  # plaintexts are read as signed, between −n/2 and n/2
        if room < 1:
            raise OverflowRefused(
                f"{what} needs {slot} bits and a key of {key_bits} bits has room for {key_bits - 2}: use a "
                "larger key, a "
                "larger learning rate at the cut or a smaller batch"
            )
        group = min(room, columns)
        groups = -(-columns // group)
        per = room // columns if groups == 1 else 1
        return Layout(slot=slot, group=group, per=per, groups=groups)
