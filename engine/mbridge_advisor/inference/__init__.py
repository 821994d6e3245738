"""Forward chaining over the rules and quantities of one revision.

    program = Program.build(knowledge.terms, knowledge.quantities.values(), knowledge.rules.values(), revision)
    inference = infer(program, {"tp": 2, "pp": 1, ...})
    inference.facts["dp"], inference.derivations["dp"], inference.firings, inference.not_judged
    inference.chain("dp").to_dict()

For many candidates at once: :meth:`Program.columns` and :meth:`Program.constraint_masks`.
"""

from .forward import Engine, Matcher, infer
from .program import InferenceError, Program, Step
from .proof import Conflict, Derivation, Firing, Inference, Proof

__all__ = [
    "Conflict",
    "Derivation",
    "Engine",
    "Firing",
    "Inference",
    "InferenceError",
    "Matcher",
    "Program",
    "Proof",
    "Step",
    "infer",
]
