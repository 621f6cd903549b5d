"""The rules every source file keeps, as one table: the sentence, and the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from house_asserts import asserts_say_something
from house_imports import layers_point_down, numpy_stays_home, torch_stays_home
from house_names import (
    attributes_have_names,
    class_names_have_one_meaning,
    words_are_the_fields,
)
from house_shape import files_are_small, functions_are_short, public_things_have_a_docstring
from house_state import environment_is_read_in_one_place, no_mutable_state
from house_tree import Module

Check = Callable[[Module], Iterator[str]]

RULES: Mapping[str, Check] = {
    "functions are short": functions_are_short,
    "files are small": files_are_small,
    "public things have a docstring": public_things_have_a_docstring,
    "class names have one meaning": class_names_have_one_meaning,
    "attributes have names": attributes_have_names,
    "asserts say something": asserts_say_something,
    "words are the field's": words_are_the_fields,
    "layers point down": layers_point_down,
    "torch stays home": torch_stays_home,
    "numpy stays home": numpy_stays_home,
    "the environment is read in one place": environment_is_read_in_one_place,
    "there is no mutable module state": no_mutable_state,
}
