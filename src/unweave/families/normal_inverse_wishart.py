"""NormalInverseWishart: mean x̄ | Σ ~ N(m, Σ/κ), covariance Σ ~ InverseWishart(ν, Ψ), d dimensions.

    eta = (κ m,    κ,            triangle of Ψ + κ m mᵀ, ν)
    s   = (Σ⁻¹x̄,  −½ x̄ᵀΣ⁻¹x̄,   −½ w_ij (Σ⁻¹)_ij,       −½ log det Σ)
    log h = −½(d + 2) log det Σ − (d/2) log 2π
    A   = −(d/2) log κ + log Γ_d(ν/2) + (νd/2) log 2 − (ν/2) log det Ψ

A record x adds (x, 1, triangle of xxᵀ, 1), so the factor of a shard is (Σx, N, Σxxᵀ, N).
θ is the flat vector (x̄, triangle of Σ).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unweave.errors import DomainError
from unweave.families.base import Family, Floats, Params
from unweave.families.marginals import InverseGammaMarginal, Marginal, StudentTMarginal
from unweave.families.numerics.packed import (
    cholesky,
    inverse,
    log_det,
    matvec,
    outer,
    outer_sum,
    pack,
    packed_names,
    packed_size,
    quadratic,
    relative_spectrum,
    second_moments,
    smallest_eigenvalue,
    solve_vector,
    square_matrix,
    statistics_matrix,
    symmetric,
    unpack,
)
from unweave.families.numerics.special import HALF_LOG_2PI, gamma_entropy_part, log_excess, trigamma
from unweave.families.numerics.wishart import (
    half_degrees,
    inverse_degrees,
    log_multigamma,
    trigamma_excess,
    wishart_kl,
)
from unweave.lazy import special
from unweave.rng import Rng

__all__ = ["NormalInverseWishartFamily"]


class _Parts(NamedTuple):
    m: Floats
    kappa: Floats
    psi: Floats
    factor: Floats  # Cholesky factor of Ψ
    df: Floats


def _representable(a: Floats) -> Floats:
    """`a` with a condition number of at most 1e6: beyond its square a float64 Σ is not positive
    definite, so the far tail of a law with df near d − 1 ends there."""
    diagonal = np.abs(np.diagonal(a, axis1=-2, axis2=-1))
    suspect = diagonal.min(-1) < 1e-5 * np.abs(a).max((-2, -1))
    if suspect.any():
        left, values, right = np.linalg.svd(a[suspect])
        values = np.maximum(values, 1e-6 * values[..., :1])
        a[suspect] = (left * values[..., None, :]) @ right
    return a


class NormalInverseWishartFamily(Family):
    """Mean and covariance of a normal in `dim` dimensions."""

    name = "NormalInverseWishart"

    def __init__(self, dim: int) -> None:
        self.d = self._at_least(1, "dimension", dim)
        names = (*(f"h[{i}]" for i in range(dim)), "kappa", *packed_names("T", dim), "df")
        thetas = [f"mean[{i}]" for i in range(dim)] + [f"Sigma[{i},{i}]" for i in range(dim)]
        weights = np.zeros(len(names))
        weights[-1] = dim + 2.0
        event = (dim + packed_size(dim),)
        self._set(names, tuple(thetas), event, -dim * HALF_LOG_2PI, weights)

    def _split(self, eta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        triangle = unpack(eta[..., self.d + 1 : -1], self.d)
        return eta[..., : self.d], eta[..., self.d], triangle, eta[..., -1]

    def _parts(self, eta: Floats) -> _Parts:
        h, kappa, second, df = self._split(eta)
        m = h / kappa[..., None]
        psi = second - h[..., :, None] * m[..., None, :]
        return _Parts(m, kappa, psi, cholesky(psi, "the scale Ψ of NormalInverseWishart"), df)

    def log_partition(self, eta: Floats) -> Floats:
        _, kappa, _, factor, df = self._parts(eta)
        log_scale = self.d * np.log(2.0) - log_det(factor)
        gamma = log_multigamma(df, self.d)
        result: Floats = gamma + 0.5 * df * log_scale - 0.5 * self.d * np.log(kappa)
        return result

    def mean(self, eta: Floats) -> Floats:
        """E[Σ⁻¹] = νΨ⁻¹ =: W, E[Σ⁻¹x̄] = Wm, E[x̄ᵀΣ⁻¹x̄] = d/κ + mᵀWm,
        E[log det Σ] = log det Ψ − d log 2 − Σ_j ψ((ν−j)/2)."""
        m, kappa, _, factor, df = self._parts(eta)
        w = df[..., None, None] * inverse(factor)
        square = self.d / kappa + quadratic(w, m)
        return self._join(matvec(w, m), square, w, self._mean_log_det(factor, df))

    def _mean_log_det(self, factor: Floats, df: Floats) -> Floats:
        digammas = special.psi(half_degrees(df, self.d)).sum(-1)
        result: Floats = log_det(factor) - self.d * np.log(2.0) - digammas
        return result

    def _join(self, first: Floats, square: Floats, w: Floats, log_volume: Floats) -> Floats:
        """Mean parameters from E[Σ⁻¹x̄], E[x̄ᵀΣ⁻¹x̄], E[Σ⁻¹] and E[log det Σ]."""
        middle, last = -0.5 * square[..., None], -0.5 * log_volume[..., None]
        return np.concatenate([first, middle, second_moments(w), last], axis=-1)

    def _unjoin(self, mu: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        w = statistics_matrix(mu[..., self.d + 1 : -1], self.d)
        return mu[..., : self.d], -2.0 * mu[..., self.d], w, -2.0 * mu[..., -1]

    def natural(self, mu: Floats) -> Floats:
        first, square, w, log_volume = self._unjoin(mu)
        factor = cholesky(w, "mu of NormalInverseWishart: E[Σ⁻¹]")
        m = solve_vector(w, first)
        spread = square - (m * first).sum(-1)
        if not (spread > 0.0).all():
            raise DomainError(
                "mu of NormalInverseWishart: E[x̄ᵀΣ⁻¹x̄] is too small for E[Σ⁻¹x̄]. Fix: mean "
                "parameters of a distribution"
            )
        df = inverse_degrees(log_volume + log_det(factor), self.d, "mu of NormalInverseWishart")
        return self._eta(m, self.d / spread, df[..., None, None] * inverse(factor), df)

    def _eta(self, m: Floats, kappa: Floats, psi: Floats, df: Floats) -> Floats:
        h = kappa[..., None] * m
        second = pack(psi + h[..., :, None] * m[..., None, :])
        parts = (h, kappa[..., None], second, df[..., None])
        batch = np.broadcast_shapes(*(x.shape[:-1] for x in parts))
        return np.concatenate([np.broadcast_to(x, batch + x.shape[-1:]) for x in parts], axis=-1)

    def fisher_dot(self, eta: Floats, v: Floats) -> Floats:
        """The differential of `mean` along v = (u, dκ, U, dν)."""
        m, kappa, _, factor, df = self._parts(eta)
        u, dk, change, ddf = self._split(v)
        inverse_psi = inverse(factor)
        w = df[..., None, None] * inverse_psi
        dm = (u - dk[..., None] * m) / kappa[..., None]
        dpsi = change - outer_sum(u, m) + dk[..., None, None] * outer(m)
        dw = ddf[..., None, None] * inverse_psi - w @ dpsi @ inverse_psi
        dsquare = quadratic(dw, m) + 2.0 * (dm * matvec(w, m)).sum(-1) - self.d * dk / kappa**2
        half = 0.5 * trigamma(half_degrees(df, self.d)).sum(-1)
        dvolume = (inverse_psi * dpsi).sum((-2, -1)) - half * ddf
        return self._join(matvec(dw, m) + matvec(w, dm), dsquare, dw, dvolume)

    def fisher_solve(self, eta: Floats, v: Floats) -> Floats:
        """The differential of `natural`: the steps of `fisher_dot` undone in reverse."""
        m, kappa, psi, factor, df = self._parts(eta)
        first, dsquare, dw, dvolume = self._unjoin(v)
        w = df[..., None, None] * inverse(factor)
        rest = first - matvec(dw, m)
        dm = matvec(psi, rest) / df[..., None]
        dk = -(dsquare - quadratic(dw, m) - 2.0 * (dm * matvec(w, m)).sum(-1)) * kappa**2 / self.d
        trace = (dw * psi).sum((-2, -1)) / df
        ddf = -(dvolume + trace) / trigamma_excess(df, self.d)
        dpsi = (ddf[..., None, None] * psi - symmetric(psi @ dw @ psi)) / df[..., None, None]
        u = kappa[..., None] * dm + dk[..., None] * m
        change = dpsi + outer_sum(u, m) - dk[..., None, None] * outer(m)
        return np.concatenate([u, dk[..., None], pack(change), ddf[..., None]], axis=-1)

    def _kl(self, p: Floats, q: Floats) -> Floats:
        """KL of the covariances + ½ d (r − 1 − log r) + ½ κ_q ν_p dmᵀΨ_p⁻¹dm, r = κ_q/κ_p."""
        before, after = self._parts(p), self._parts(q)
        dh, dk, dsecond, _ = self._split(q - p)
        dm = (dh - dk[..., None] * before.m) / after.kappa[..., None]
        # d(κmmᵀ) = dh m_qᵀ + h_p dmᵀ, without subtracting the two products.
        h = p[..., : self.d]
        dpsi = dsecond - symmetric(
            dh[..., :, None] * after.m[..., None, :] + h[..., :, None] * dm[..., None, :]
        )
        relative = relative_spectrum(before.factor, dpsi)
        determinants = log_det(after.factor) - log_det(before.factor)
        covariance = wishart_kl(before.df, after.df, relative, determinants)
        root = solve_vector(before.factor, dm)
        ratio = log_excess(dk / before.kappa, after.kappa / before.kappa)
        shift = after.kappa * before.df * (root * root).sum(-1)
        result: Floats = covariance + 0.5 * (self.d * ratio + shift)
        return result

    def _entropy(self, eta: Floats) -> Floats:
        """Entropy of Σ plus the mean entropy of x̄ given Σ; the terms in ν log ν cancel."""
        d = self.d
        _, kappa, _, factor, df = self._parts(eta)
        half = half_degrees(df, d)
        weights = 0.5 * (np.arange(d) + d + 3.0)
        gammas = (gamma_entropy_part(half) - weights * special.psi(half)).sum(-1)
        volume = 0.5 * (d + 1) * (log_det(factor) - d * np.log(2.0))
        covariance = gammas + volume + 0.25 * d * (d - 1) * (1.0 + np.log(np.pi))
        location = 0.5 * (self._mean_log_det(factor, df) - d * np.log(kappa))
        result: Floats = covariance + location + d * (HALF_LOG_2PI + 0.5)
        return result

    def _log_prob(self, eta: Floats, theta: Floats) -> Floats:
        d = self.d
        m, kappa, _, factor, df = self._parts(eta)
        root = cholesky(unpack(theta[..., d:], d), "Σ")
        z = solve_vector(root, theta[..., :d] - m)
        trace = (np.linalg.solve(root, factor) ** 2).sum((-2, -1))
        norm = 0.5 * d * np.log(kappa) - d * HALF_LOG_2PI - log_multigamma(df, d)
        norm = norm + 0.5 * df * (log_det(factor) - d * np.log(2.0))
        exponent = kappa * (z * z).sum(-1) + trace + (df + d + 2.0) * log_det(root)
        result: Floats = norm - 0.5 * exponent
        return result

    def statistics(self, theta: Floats) -> Floats:
        x = theta[..., : self.d]
        factor = cholesky(unpack(theta[..., self.d :], self.d), "Σ")
        precision = inverse(factor)
        first = matvec(precision, x)
        return self._join(first, (x * first).sum(-1), precision, log_det(factor))

    def in_support(self, theta: Floats) -> NDArray[np.bool_]:
        regular = smallest_eigenvalue(unpack(theta[..., self.d :], self.d)) > 0.0
        result: NDArray[np.bool_] = regular & np.isfinite(theta).all(-1)
        return result

    def margin(self, eta: Floats) -> Floats:
        """min(κ, λ_min(Ψ), ν − d + 1); Ψ counts only where κ > 0."""
        h, kappa, second, df = self._split(eta)
        safe = np.where(kappa > 0.0, kappa, 1.0)[..., None, None]
        least = smallest_eigenvalue(second - outer(h) / safe)
        scale = np.where(kappa > 0.0, least, kappa)
        result: Floats = np.minimum(np.minimum(kappa, df - (self.d - 1.0)), scale)
        return result

    def violation(self, eta: Floats) -> str:
        h, kappa, second, df = self._split(eta)
        if not kappa > 0.0:
            return f"kappa = {float(kappa):.6g} must be above 0"
        if not df > self.d - 1.0:
            return f"df = {float(df):.6g} must be above {self.d - 1} in {self.d} dimensions"
        least = float(smallest_eigenvalue(second - outer(h) / kappa))
        return (
            f"the scale Ψ = T − hhᵀ/κ must be positive definite, its smallest eigenvalue is "
            f"{least:.6g}"
        )

    def sample(self, eta: Floats, rng: Rng, size: tuple[int, ...] = ()) -> Floats:
        """Bartlett: Σ⁻¹ = C⁻ᵀAAᵀC⁻¹ with Ψ = CCᵀ, so Σ = BBᵀ for B = C A⁻ᵀ."""
        d = self.d
        m, kappa, _, factor, df = self._parts(eta)
        half = half_degrees(df, d)
        shape = size + half.shape
        diagonal = np.sqrt(2.0 * rng.standard_gamma(half, shape))
        lower = np.tril(rng.standard_normal((*shape, d)), -1)
        a = _representable(lower + diagonal[..., None] * np.eye(d))
        b = np.swapaxes(np.linalg.solve(a, np.swapaxes(factor, -1, -2)), -1, -2)
        z = rng.standard_normal(shape)
        x = m + matvec(b, z) / np.sqrt(kappa)[..., None]
        return np.concatenate([x, pack(b @ np.swapaxes(b, -1, -2))], axis=-1)

    def marginals(self, eta: Floats) -> tuple[Marginal, ...]:
        m, kappa, psi, _, df = self._parts(eta)
        free = df - (self.d - 1.0)
        diagonal = np.diagonal(psi, axis1=-2, axis2=-1)
        scale = np.sqrt(diagonal / (kappa * free)[..., None])
        means = tuple(
            StudentTMarginal(self.theta_names[i], free, m[..., i], scale[..., i])
            for i in range(self.d)
        )
        variances = tuple(
            InverseGammaMarginal(self.theta_names[self.d + i], 0.5 * free, 0.5 * diagonal[..., i])
            for i in range(self.d)
        )
        return means + variances

    def covariance(self, eta: Floats) -> Floats:
        """Cov(x̄) = E[Σ]/κ; Cov(Σ_ii, Σ_jj) = 2(Ψ_iiΨ_jj + (f − 1)Ψ_ij²)/(f(f − 1)²(f − 3)) with
        f = ν − d; x̄ and Σ are uncorrelated."""
        _, kappa, psi, _, df = self._parts(eta)
        f = (df - self.d)[..., None, None]
        diagonal = np.diagonal(psi, axis1=-2, axis2=-1)
        found = np.zeros((*eta.shape[:-1], 2 * self.d, 2 * self.d))
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(f > 1.0, psi / (f - 1.0), np.inf)
            products = diagonal[..., :, None] * diagonal[..., None, :]
            spread = 2.0 * (products + (f - 1.0) * psi * psi) / (f * (f - 1.0) ** 2 * (f - 3.0))
        found[..., : self.d, : self.d] = mean / kappa[..., None, None]
        found[..., self.d :, self.d :] = np.where(f > 3.0, spread, np.inf)
        return found

    def to_params(self, eta: Floats) -> Params:
        m, kappa, psi, _, df = self._parts(eta)
        return {"mean": m, "kappa": kappa, "df": df, "scale": psi}

    def from_params(self, **params: ArrayLike) -> Floats:
        what = "NormalInverseWishart(mean, kappa, df, scale)"
        psi = square_matrix(params["scale"], self.d, f"{what}: scale")
        m, kappa, df = (np.asarray(params[k], dtype=np.float64) for k in ("mean", "kappa", "df"))
        return self.check(self._eta(m, kappa, psi, df), what, stated=True)

    def _support_point(self) -> Floats:
        return np.concatenate([np.zeros(self.d), pack(np.eye(self.d))])

    def __repr__(self) -> str:
        return f"NormalInverseWishartFamily(dim={self.d})"
