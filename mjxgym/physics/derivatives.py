"""Where an engine has no derivative: a sentence when one is asked for, never a silent zero.

Both functions give back what they are given and vanish when a program is compiled.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

T = TypeVar("T")


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def refuse(sentence: str, values: Any) -> Any:
    """`values`, a tree; NotImplementedError with the sentence where a derivative, in either mode, comes to them."""
    return values


@refuse.defjvp
def _refused(sentence: str, primals: Any, tangents: Any) -> NoReturn:
    raise NotImplementedError(sentence)


def refuse_reverse(sentence: str, values: T) -> T:
    """`values`, a tree; NotImplementedError with the sentence where a reverse-mode derivative comes to them.

    Put it around results: reverse mode meets them before it meets what it cannot pass.
    """

    def leaf(value: Array) -> Array:
        inexact = jnp.issubdtype(value.dtype, jnp.inexact)
        return _forward_only.bind(value, sentence=sentence) if inexact else value

    return jax.tree.map(leaf, values)


def _refused_reverse(cotangent: Any, value: Any, *, sentence: str) -> NoReturn:
    raise NotImplementedError(sentence)


_forward_only = Primitive("forward_only")  # the identity, linear, without a transpose
_forward_only.def_impl(lambda value, *, sentence: value)
_forward_only.def_abstract_eval(lambda value, *, sentence: value)
batching.defvectorized(_forward_only)
ad.deflinear2(_forward_only, _refused_reverse)
mlir.register_lowering(_forward_only, lambda context, value, *, sentence: [value])
