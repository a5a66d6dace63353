"""The calibration methods' equations in numpy float64, written down from the papers; no code of the package.

Each takes a run's steps (x, g, training) and gives for every step the output, the gradient with respect to x of
sum(output * g), and what a checkpoint would hold. Where the equations say nothing about an input, "Chosen" says
what holds. Derivatives that aren't plain are complex steps through the reference itself: exact to rounding.
"""

import math

import numpy as np


def complex_step(function, x):
    """Gradient of a real function of an array: Im f(x + ih) / h, one entry at a time."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        moved = x.astype(complex)
        moved[index] += 1e-30j
        gradient[index] = np.imag(function(moved)) / 1e-30
    return gradient


def average(x):
    """Exact if all are equal."""
    return x[0] + sum(one - x[0] for one in x) / len(x)


def covariance(x):
    """Biased: the mean over the rows of the centred row's outer product with itself."""
    return average([np.outer(row - average(x), row - average(x)) for row in x])


def moving(weight, values):
    """An exponential average written out: the newest weighs a, the one before a (1 - a), ...; the first, the rest."""
    last = len(values) - 1
    return values[0] + sum(
        weight * (1 - weight) ** (last - i) * (value - values[0]) for i, value in enumerate(values) if i
    )


def isobn(steps, alpha, eps, beta, gamma, rescale):
    """Zhou et al. 2021: Algorithm 1 (averages, no gradient), Eqs. 4 (gamma), 6 (theta), 7 (theta-bar), 8.

    Chosen: a feature that never varied correlates with nothing; without any variance the layer is the identity.
    The released code starts its averages from zero, the paper's here from the first batch.
    """
    released, zero = rescale == "released", np.zeros(steps[0][0].shape[1])
    covariances, deviations = ([np.diag(zero)], [zero]) if released else ([], [])
    for x, g, training in steps:
        if training:
            covariances.append(covariance(x))
            deviations.append(np.sqrt(np.diag(covariances[-1])))
        cov, sigma = moving(alpha, covariances), moving(alpha, deviations)
        invert = np.diag([1 / s if s else 0.0 for s in sigma])
        rho = invert @ cov @ invert
        if released:
            rho = np.minimum(np.maximum(rho, -1), 1)
        gammas = np.diag(rho @ rho.T) / (len(sigma) if gamma == "mean" else 1)  # sum or mean over j of rho_ij^2
        theta = 1 / (sigma * gammas + eps) ** beta
        if not sigma.any():
            theta = np.ones_like(sigma)
        elif released:
            theta = theta * math.sqrt(np.trace(cov) / (np.trace(np.diag(theta) @ cov @ np.diag(theta)) + eps))
        else:
            kept = sum(sigma**2) / sum((sigma * theta) ** 2)
            theta = theta * (kept if rescale == "printed" else math.sqrt(kept))
        state = {"deviation": sigma, "covariance": cov, "batches": len(covariances) - released}
        yield x @ np.diag(theta), g @ np.diag(theta), state


def isobn_original(steps, alpha):
    """Zhou et al. 2021, Eq. 5 with Eq. 4's gamma: (h_i - mu_i) / (sigma_i gamma_i).

    Chosen: mu is a moving average as sigma and Sigma are in Algorithm 1, all from the first batch on and without
    gradient; a feature without any variance is not scaled.
    """
    means, covariances, deviations = [], [], []
    for x, g, training in steps:
        if training:
            means.append(average(x))
            covariances.append(covariance(x))
            deviations.append(np.sqrt(np.diag(covariances[-1])))
        mu, cov, sigma = (moving(alpha, values) for values in (means, covariances, deviations))
        scale = []
        for i, s in enumerate(sigma):
            gamma = sum((cov[i, j] / (s * sigma[j])) ** 2 for j in range(len(sigma)) if s and sigma[j])
            scale.append(s * gamma if s else 1.0)
        state = {"deviation": sigma, "covariance": cov, "mean": mu, "batches": len(covariances)}
        yield (x - mu) / scale, g / scale, state


def centring(steps, kind, count, corrected, momentum):
    """Bis et al. 2021: h - mu; h - |h| m; h - mu less its (or h's own) part in the top directions (Eqs. 9-11).

    Chosen: averages start from the first batch and carry no gradient; a zero row has no direction; a direction
    without variance is not taken away.
    """
    means, covariances = [], []
    for x, g, training in steps:
        if training:
            means.append(average([unit(row) for row in x] if kind == "center_scaled" else x))
            covariances.append(covariance(x))
        mean, cov = moving(momentum, means), moving(momentum, covariances)
        state = {"mean": mean, "batches": len(means), "covariance": np.zeros((0, 0)), "top": np.zeros((0, 0))}
        if kind == "center_scaled":
            lengths = np.array([math.sqrt(row @ row) for row in x])
            along = np.array([unit(row) * (up @ mean) for row, up in zip(x, g, strict=True)])
            yield x - np.outer(lengths, mean), g - along, state
            continue
        u, s, _ = np.linalg.svd(cov)
        kept = [u[:, i] for i in range(count) if s[i] > 1e-6 * s[0]] if kind == "all_but_the_top" else []
        projection = sum((np.outer(v, v) for v in kept), np.zeros_like(cov))
        if kind == "all_but_the_top":
            state |= {"covariance": cov, "top": projection}
        taken = (x - mean if corrected else x) @ projection
        yield x - mean - taken, g - g @ projection, state


def unit(row):
    length = math.sqrt(row @ row)
    return row / length if length else row


def batch_norm(steps, momentum, eps):
    """(h - mu) / sqrt(sigma^2 + eps), through which the gradient flows; unbiased variances in the average.

    Chosen: a batch of one has no variance, so it is normalised by the averages and doesn't enter them.
    """

    def normal(x):
        centred = x - average(x)
        return centred / np.sqrt(average(centred * centred) + eps)

    dim = steps[0][0].shape[1]
    means, variances = [np.zeros(dim)], [np.ones(dim)]
    for x, g, training in steps:
        own = training and len(x) > 1
        if own:
            means.append(average(x))
            variances.append(np.diag(covariance(x)) * len(x) / (len(x) - 1))
        mean, variance = moving(momentum, means), moving(momentum, variances)
        state = {"mean": mean, "variance": variance}
        if own:
            yield normal(x), complex_step(lambda moved, g=g: (normal(moved) * g).sum(), x), state
        else:
            yield (x - mean) / np.sqrt(variance + eps), g / np.sqrt(variance + eps), state


def whitening(steps, form, k, momentum, shrinkage, epsilon=0, keep_norm=False):
    """(h - mu) T: T = Sigma^-1/2 (ZCA) or the first k columns of U diag(1 / sqrt(s)) (PCA), Sigma shrunk.

    With epsilon, s + epsilon stands for s (Diera et al. 2024). With keep_norm, T is scaled so that the mean squared
    norm stays. Moving averages, no gradient through them. Chosen: without any variance only the mean is taken away. A
    column's sign is anybody's: here its largest entry is positive.
    """
    means, covariances, dim = [], [], steps[0][0].shape[1]
    for x, g, training in steps:
        if training:
            means.append(average(x))
            covariances.append(covariance(x))
        mean, cov = moving(momentum, means), moving(momentum, covariances)
        u, s, _ = np.linalg.svd((1 - shrinkage) * cov + shrinkage * np.trace(cov) / dim * np.eye(dim))
        s = s + epsilon
        if not np.trace(cov):
            transform = np.eye(dim)[:, :k]
        elif form == "zca":
            transform = sum(np.outer(column, column) / math.sqrt(value) for column, value in zip(u.T, s, strict=True))
        else:
            transform = u[:, :k] @ np.diag(1 / np.sqrt(s[:k]))
            transform = transform * signs(transform)
        if keep_norm and np.trace(cov):
            before, after = np.trace(cov) + mean @ mean, np.trace(transform.T @ cov @ transform)
            transform = transform * math.sqrt(before / after)
        state = {"mean": mean, "covariance": cov, "transform": transform, "batches": len(means)}
        yield (x - mean) @ transform, g @ transform.T, state


def signs(columns):
    """Of every column's largest entry."""
    return np.sign(columns[np.abs(columns).argmax(0), np.arange(columns.shape[1])])


def fixed_norm(steps, kind, eps):
    """z: (x - mu) / (sigma + eps); minmax: (2x - t1 - t2) / (t2 - t1 + eps); l2: x / (sqrt(E[x^2]) + eps).

    Statistics of all the training rows, before the first step.
    """
    every = np.concatenate([x for x, _, training in steps if training])
    t1, t2 = every.min(0), every.max(0)
    shift, width = {
        "z": (average(every), np.sqrt(np.diag(covariance(every))) + eps),
        "minmax": ((t1 + t2) / 2, (t2 - t1 + eps) / 2),
        "l2": (0 * t1, np.sqrt(average(every**2)) + eps),
    }[kind]
    for x, g, _ in steps:
        yield (x - shift) / width, g / width, {"shift": shift, "scale": 1 / width}


def gradient_norm(steps, alpha, eps):
    """g_j (mean(mu) / (mu_j + eps))^alpha, mu_j the mean over the batch of |g_j|; the output is the input.

    Chosen: eps is in units of mean(mu), and where there is no gradient at all none is made up.
    """
    for x, g, _ in steps:
        mu = [average(np.abs(column)) for column in g.T]
        factors = [(average(mu) / (m + eps * average(mu))) ** alpha if any(mu) else 1.0 for m in mu]
        yield x, g @ np.diag(factors), {}


def cosine(steps, strength):
    """Strength / V^2 times the sum over ordered pairs i != j of cos(w_i, w_j).

    Chosen: a zero row has no direction, so its cosines are 0 and it gets no gradient.
    """

    def value(w, directed):
        unit = np.array([row / np.sqrt(row @ row) if ok else 0 * row for row, ok in zip(w, directed, strict=True)])
        pairs = unit @ unit.T
        np.fill_diagonal(pairs, 0)
        return strength * pairs.sum() / len(w) ** 2

    for w, g, _ in steps:
        directed = w.any(1)
        gradient = complex_step(lambda moved, directed=directed: value(moved, directed), w)
        yield value(w, directed), g * gradient * directed[:, None], {}


def spectrum(steps, decay, strength, c1, c2, gamma):
    """Strength times sum_k (sigma_k - t_k)^2, t_k = c1 k^gamma or c1 exp(-c2 k^gamma), through the SVD.

    Chosen: c1=None is sigma_1 of the first matrix. A singular value of zero (less than 1e-7 of the first: a float32
    matrix knows no less) has no direction of its own and gets no gradient.
    """
    start = np.linalg.svd(steps[0][0])[1][0] if c1 is None else math.nan
    for w, g, _ in steps:
        u, sigma, vt = np.linalg.svd(w, full_matrices=False)
        k = np.arange(1, len(sigma) + 1.0)
        target = (start if c1 is None else c1) * (k**gamma if decay == "polynomial" else np.exp(-c2 * k**gamma))
        slope = np.where(sigma > 1e-7 * sigma[0], 2 * (sigma - target), 0)
        yield strength * sum((sigma - target) ** 2), g * strength * (u @ np.diag(slope) @ vt), {"start": start}


def flow(steps, p, levels, repeats, affine, learned, lr):
    """Glow (Kingma & Dhariwal 2018) as in BERT-flow; gradient descent on its own loss, bits per dimension.

    A level is some repeats of actnorm, mixing (reversal, or a matrix) and coupling; between levels the first half
    goes out. Chosen: actnorm starts from the first batch; a feature that deviates by at most 1e-6 keeps its scale.
    """

    def bits(h, p):
        z, log_determinant = glow(h, p, affine, learned, levels, repeats)
        log_density = -(z * z).sum(1) / 2 - z.shape[1] * math.log(2 * math.pi) / 2 + log_determinant
        return -average(log_density) / z.shape[1] / math.log(2)

    for number, (x, g, training) in enumerate(steps):
        z = glow(x, p, affine, learned, levels, repeats, start=not number)[0]
        gradient = complex_step(lambda h, p=p, g=g: (glow(h, p, affine, learned, levels, repeats)[0] * g).sum(), x)
        loss = bits(x, p)
        if training:
            learning = {key: value for key, value in p.items() if not key.endswith("initialized")}
            p = p | {
                key: value - lr * complex_step(lambda moved, p=p, key=key, x=x: bits(x, p | {key: moved}), value)
                for key, value in learning.items()
            }
        yield z, gradient, p | {"loss": loss}


def glow(h, p, affine, learned, levels, repeats, start=False):
    """z, and log |det dz/dh| of every row; ``start`` puts actnorm's first values into p."""
    out, log_determinant = [], np.zeros(len(h))
    for level, step in np.ndindex(levels, repeats):
        if level and not step:
            gone, h = np.split(h, 2, axis=1)
            out.append(gone)
        at = f"glow.levels.{level}.{step}."
        if start:
            deviations = np.sqrt(np.diag(covariance(h)))
            scale = np.array([-math.log(s) if s > 1e-6 else 0.0 for s in deviations])
            p |= {f"{at}norm.bias": -average(h), f"{at}norm.log_scale": scale, f"{at}norm.initialized": 1.0}
        h = (h + p[f"{at}norm.bias"]) * np.exp(p[f"{at}norm.log_scale"])
        log_determinant = log_determinant + p[f"{at}norm.log_scale"].sum()
        if learned:
            h = h @ p[f"{at}mixing"]
            log_determinant = log_determinant + np.log(np.linalg.det(p[f"{at}mixing"]) ** 2) / 2
        else:
            h = h[:, ::-1]
        kept, moved = np.split(h, 2, axis=1)
        said = kept
        for layer in (0, 2, 4):
            said = said @ p[f"{at}coupling.network.{layer}.weight"].T + p[f"{at}coupling.network.{layer}.bias"]
            said = np.where(said.real > 0, said, 0) if layer < 4 else said
        scale = np.ones(1)
        if affine:
            said, raw = np.split(said, 2, axis=1)
            scale = 1 / (1 + np.exp(-raw - 2))
        log_determinant = log_determinant + np.log(scale).sum(-1)
        h = np.concatenate([kept, (moved + said) * scale], axis=1)
    return np.concatenate([*out, h], axis=1), log_determinant
