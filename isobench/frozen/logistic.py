"""Fit many multinomial logistic regressions at once, along a path of strengths of their L2 penalty.

Problems that share vectors and differ in the weights of the examples, as the folds of a cross-validation do, are
solved together: a step of all of them is two products of matrices.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

TOLERANCE = 1e-3  # of the gradient's norm, relative to that where all coefficients are 0
MOST_STEPS = 200
MEMORY = 6  # pairs of steps and changes of the gradient that L-BFGS keeps
HALVINGS = 20  # of a step, at most
SUFFICIENT = 1e-4  # share of the decrease that the gradient promises (Armijo)


def find_basis(x: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of vectors [D, n, d]: [D, d, r], r at most n and d.

    An L2 penalty keeps the coefficients in this span, and a rotation changes neither penalty nor predictions.
    """
    if x.shape[1] > x.shape[2]:
        return torch.linalg.eigh(x.mT @ x).eigenvectors
    return torch.linalg.svd(x, full_matrices=False).Vh.mT


class _Problems:
    """Compute objectives and gradients of the M problems on each of D sets of vectors that `fit_path` describes.

    Coefficients are [D, r + 1, M, K], the intercepts last, and their penalties [D, r + 1, M].
    """

    def __init__(self, x: Tensor, classes: Tensor, weights: Tensor, count: int) -> None:
        sets, n, rank = x.shape
        self.shape = (sets, n, weights.shape[2], count)
        self.inputs = torch.cat([x, x.new_ones(sets, n, 1)], 2)
        self.target = classes[:, :, None, None].expand(*self.shape[:3], 1)
        self.totals = weights.sum(1)  # [D, M]
        self.share = (weights / self.totals[:, None])[..., None]  # [D, n, M, 1]
        squares = (self.inputs * self.inputs).mean(1)[..., None]
        self.curvature = (1 / count) * (1 - 1 / count) * squares  # [D, r + 1, 1]
        self.penalised = x.new_ones(rank + 1, 1)
        self.penalised[-1] = 0  # the intercepts are free

    def multiply(self, coefficients: Tensor) -> Tensor:
        """Compute the logits, [D, n, M, K]."""
        return (self.inputs @ coefficients.flatten(2)).view(self.shape)

    def evaluate(self, coefficients: Tensor, logits: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the objectives, [D, M], and the logarithms of the softmax's denominators, [D, n, M, 1]."""
        spread = logits.logsumexp(3, keepdim=True)
        loss = (self.share * (spread - logits.gather(3, self.target))).sum((1, 3))
        return loss + 0.5 * (penalty[..., None] * coefficients.square()).sum((1, 3)), spread

    def differentiate(self, coefficients: Tensor, logits: Tensor, spread: Tensor, penalty: Tensor) -> Tensor:
        """Compute the gradients by the coefficients."""
        errors = (logits - spread).exp_().mul_(self.share)
        errors.scatter_add_(3, self.target, -self.share)
        return (self.inputs.mT @ errors.flatten(2)).view_as(coefficients) + penalty[..., None] * coefficients


def fit_path(x: Tensor, classes: Tensor, weights: Tensor, strengths: Sequence[float], count: int) -> Iterator:
    """Fit M problems on each of D sets of vectors, one strength after the other; each starts from the one before.

    A problem minimises C * (sum over examples of weight * cross-entropy) + |W|^2 / 2, with free intercepts: the
    objective of scikit-learn's LogisticRegression (with two classes it has one vector, and its C is twice ours). The
    solver is L-BFGS (Nocedal & Wright 2006, Algorithm 7.4) with a backtracking line search. It begins with a diagonal
    that stands for the inverse Hessian, and is exact where ``x`` is in the basis of its principal components and all
    classes have the probability 1 / K.

    Args:
        x: vectors whose mean is 0 or nearly so, [D, n, r], best in the basis of their principal components.
        classes: numbers of the classes, [D, n] int64.
        weights: of the examples, [D, n, M], not all 0 in any problem.
        strengths: values of C, ascending.
        count: K, the number of classes.

    Yields:
        For each strength the coefficients [D, r + 1, M, K], the intercepts last, and the logits [D, n, M, K].
    """
    problems = _Problems(x, classes, weights, count)
    w = x.new_zeros(len(x), x.shape[2] + 1, weights.shape[2], count)
    logits = problems.multiply(w)
    limit: Tensor | None = None
    for strength in strengths:
        penalty = problems.penalised / (strength * problems.totals[:, None])  # [D, r + 1, M]
        diagonal = 1 / (problems.curvature + penalty)[..., None]
        value, spread = problems.evaluate(w, logits, penalty)
        gradient = problems.differentiate(w, logits, spread, penalty)
        if limit is None:
            limit = TOLERANCE * _norm(gradient)
        history: list[tuple[Tensor, Tensor, Tensor]] = []
        for _ in range(MOST_STEPS):
            active = _norm(gradient) > limit  # [D, M]; the other problems rest: their step is 0
            if not active.any():
                break
            direction = -_apply_inverse_hessian(gradient, history, diagonal)
            slope = _dot(gradient, direction)
            step, along = active.to(x.dtype), problems.multiply(direction)
            for _ in range(HALVINGS):
                moved, moved_logits = w + _spread(step) * direction, logits + _spread(step) * along
                new_value, spread = problems.evaluate(moved, moved_logits, penalty)
                failed = new_value > value + SUFFICIENT * step * slope
                if not failed.any():
                    break
                step = torch.where(failed, step / 2, step)
            new_gradient = problems.differentiate(moved, moved_logits, spread, penalty)
            history.append(_make_pair(moved - w, new_gradient - gradient))
            del history[:-MEMORY]
            w, logits, value, gradient = moved, moved_logits, new_value, new_gradient
        yield w, logits


def _spread(values: Tensor) -> Tensor:
    return values[:, None, :, None]  # [D, M] -> [D, 1, M, 1]


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((1, 3))  # [D, M]


def _norm(a: Tensor) -> Tensor:
    return _dot(a, a).sqrt()


def _make_pair(step: Tensor, change: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a step, the gradient's change, and 1 / their product, which is 0 where a problem rests."""
    product = _dot(step, change)
    return step, change, torch.where(product > 0, 1 / product.clamp_min(torch.finfo(product.dtype).tiny), 0.0)


def _apply_inverse_hessian(
    gradient: Tensor, history: list[tuple[Tensor, Tensor, Tensor]], diagonal: Tensor
) -> Tensor:
    """Multiply the gradient, [D, r + 1, M, K], by L-BFGS's inverse Hessian: the two-loop recursion, in every problem.

    ``history`` has what `_make_pair` returns, oldest first; ``diagonal`` stands for the inverse Hessian before it.
    """
    q, factors = gradient, []
    for step, change, inverse in reversed(history):
        factor = inverse * _dot(step, q)
        q = q - _spread(factor) * change
        factors.append(factor)
    q = diagonal * q
    if history:  # the newest step says how far the diagonal is off; an inverse of 0: the problem rests
        _, change, inverse = history[-1]
        scale = (inverse * _dot(change, diagonal * change)).reciprocal()
        q = q * _spread(torch.where(inverse > 0, scale, 1.0))
    for (step, change, inverse), factor in zip(history, reversed(factors), strict=True):
        q = q + _spread(factor - inverse * _dot(change, q)) * step
    return q
