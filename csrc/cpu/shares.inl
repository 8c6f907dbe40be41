// The sums of a mean trimmed by weight: every coordinate's values are sorted together with whose they are, and the
// weight from `share` to 1 - share is averaged (weights add up to 1). Included by kernels.inl inside its namespace.

constexpr double kNothing = 1e-12;  // a weight that rounding leaves of a client that is cut off whole

// Values in wires 0..n, whose they are in n..2n. Equal values may end up in any order: the result is the same.
template <class E>
void sort_with_clients(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  auto* values = reinterpret_cast<typename E::Lane*>(scratch.wires);
  auto* whose = reinterpret_cast<typename E::Count*>(scratch.wires) + job.clients * kTile<E>;
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      store(values + client * kTile<E> + t, read_ordered<E>(from + t));
      store(whose + client * kTile<E> + t, Mask{} + static_cast<typename E::Count>(client));
    }
  }
  for (int64_t p = 0; p < job.plan.steps[0].count; ++p) {
    const int64_t low = job.plan.pairs[p].low * kTile<E>, high = job.plan.pairs[p].high * kTile<E>;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const Vector a = load<Vector>(values + low + t), b = load<Vector>(values + high + t);
      const Mask swap = reinterpret_cast<Mask>(a > b), keep = ~swap;
      const Mask x = load<Mask>(whose + low + t), y = load<Mask>(whose + high + t);
      store(values + low + t, smaller(b, a));
      store(values + high + t, larger(a, b));
      store(whose + low + t, (swap & y) | (keep & x));
      store(whose + high + t, (swap & x) | (keep & y));
    }
  }
}

// What of the weight between `from` and `to` is kept.
FEDINCENTIVE_INLINE double kept_weight(double share, double from, double to) {
  const double kept = (to < 1 - share ? to : 1 - share) - (from > share ? from : share);
  return kept > kNothing ? kept : 0;
}

template <class E>
void sum_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  sort_with_clients<E>(job, scratch, begin, count);
  const auto* values = reinterpret_cast<const typename E::Lane*>(scratch.wires);
  const auto* whose = reinterpret_cast<const typename E::Count*>(scratch.wires) + job.clients * kTile<E>;
  double passed[kTile<E>] = {};
  fill(scratch.sums, 0, kTile<E>);
  fill(scratch.weights, 0, kTile<E>);
  for (int64_t row = 0; row < job.clients * kTile<E>; row += kTile<E>) {
    for (int t = 0; t < kTile<E>; ++t) {
      const double from = passed[t], to = from + job.weights[whose[row + t]];
      const double kept = kept_weight(job.share, from, to);
      passed[t] = to;
      scratch.sums[t] += kept > 0 ? kept * values[row + t] : 0;
      scratch.weights[t] += kept;
    }
  }
}

// Kept values that are not finite, while the sorted ones are still there.
template <class E>
void examine_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  const auto* values = reinterpret_cast<const typename E::Lane*>(scratch.wires);
  const auto* whose = reinterpret_cast<const typename E::Count*>(scratch.wires) + job.clients * kTile<E>;
  for (int64_t t = 0; t < count; ++t) {
    if (means[t] - means[t] == 0) continue;
    double passed = 0;
    bool unusual = false, nan = false;
    for (int64_t row = 0; row < job.clients * kTile<E>; row += kTile<E>) {
      const double from = passed;
      const auto client = whose[row + t];
      passed += job.weights[client];
      const auto value = values[row + t];
      if (value - value == 0 || kept_weight(job.share, from, passed) == 0) continue;
      unusual = true;
      job.unusual->guilty[client] = 1;
      const auto sent = source<E>(job, scratch, client, begin, count, kTile<E>, 0)[t];
      nan |= sent != sent;
    }
    if (unusual) ++job.unusual->not_finite;
    if (nan) means[t] = __builtin_nan("");
  }
}
