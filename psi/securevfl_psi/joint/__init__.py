"""One run among an active party and one or more passive ones that ends with the same rows, in one order, at all.

Scripts over frames for each pair of parties, as `conversations` has for two. `run` greets, chooses the plan and keeps
the result; `composing` and `leading` are the two plans; `agreeing` compares the result among more than two parties.
`securevfl.align` moves the frames.
"""

from securevfl_psi.joint.run import Joint, JointResult, JointTerms

__all__ = ["Joint", "JointResult", "JointTerms"]
