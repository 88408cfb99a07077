"""Derive what a configuration field accepts from its annotation. Used by `config`, and by `data` for the options of
named data sets.

An annotation is compiled once into an `Accepts`, which takes a value, turns it into the field's own form (lists into
tuples, whole numbers into floats, names into members of an enumeration) and records every mistake with its path.
"""

from securevfl_net.fields.annotations import compile_annotation
from securevfl_net.fields.mistaken import Mistaken
from securevfl_net.fields.single import Accepts, Mistakes, format_value, suggest_nearest

__all__ = ["Accepts", "Mistaken", "Mistakes", "compile_annotation", "format_value", "suggest_nearest"]
