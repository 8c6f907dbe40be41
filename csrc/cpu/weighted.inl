// The sums of a trimmed mean with weights: a plan finds the bounds of what is kept, then clients are read again.
// Included by kernels.inl inside its namespace.

// sums[0..lanes) += factor * values
template <class V>
FEDINCENTIVE_INLINE void add_lanes(double* sums, V values, double factor) {
  for (int part = 0; part < static_cast<int>(sizeof(float)) * 2 / static_cast<int>(sizeof(values[0])); ++part) {
    double* to = sums + part * (kVector / 8);
    store(to, load<Doubles>(to) + widen_part(values, part) * factor);
  }
}

// Kept are the values strictly between the smallest and the largest kept one, and of those equal to these the clients
// that a stable sort would keep: on the low side the first of them are trimmed, on the high side the last.
template <class E>
void sum_weighted_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  using Lane = typename E::Lane;
  using Count = typename E::Count;
  Lane* low = reinterpret_cast<Lane*>(scratch.low);
  Lane* high = reinterpret_cast<Lane*>(scratch.high);
  Count* counts = reinterpret_cast<Count*>(scratch.counts);
  Count *below = counts, *above = below + kTile<E>, *at_high = above + kTile<E>, *seen_low = at_high + kTile<E>,
        *seen_high = seen_low + kTile<E>;
  fill(scratch.sums, 0, kTile<E>);
  fill(scratch.weights, 0, kTile<E>);
  for (int t = 0; t < kTile<E>; ++t) {
    low[t] = static_cast<Lane>(__builtin_inf());
    high[t] = -static_cast<Lane>(__builtin_inf());
  }
  std::memset(counts, 0, sizeof(Count) * 5 * kTile<E>);
  run_plan<E>(job, scratch, begin, count, BoundKept<Lane>{low, high});
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {  // a true lane is -1
      const Vector value = read_ordered<E>(from + t), bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      store(below + t, load<Mask>(below + t) - reinterpret_cast<Mask>(value < bottom));
      store(above + t, load<Mask>(above + t) - reinterpret_cast<Mask>(value > top));
      store(at_high + t, load<Mask>(at_high + t) - reinterpret_cast<Mask>(value == top));
    }
  }
  const Mask trim = Mask{} + static_cast<Count>(job.trim);
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    const double weight = job.weights[client], scaled = weight * job.shrink;
    const Vector ones = Vector{} + static_cast<Lane>(1);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const Vector value = read_ordered<E>(from + t), bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      const Mask is_low = reinterpret_cast<Mask>(value == bottom), is_high = reinterpret_cast<Mask>(value == top);
      const Mask before_low = load<Mask>(seen_low + t), before_high = load<Mask>(seen_high + t);
      const Mask trimmed_low = trim - load<Mask>(below + t);
      const Mask kept_high = load<Mask>(at_high + t) - (trim - load<Mask>(above + t));
      const Mask keep_low =
          reinterpret_cast<Mask>(value > bottom) | (is_low & reinterpret_cast<Mask>(before_low >= trimmed_low));
      const Mask keep_high =
          reinterpret_cast<Mask>(value < top) | (is_high & reinterpret_cast<Mask>(before_high < kept_high));
      const Mask keep = keep_low & keep_high;
      store(seen_low + t, before_low - is_low);
      store(seen_high + t, before_high - is_high);
      add_lanes(scratch.sums + t, reinterpret_cast<Vector>(keep & reinterpret_cast<Mask>(value)), scaled);
      add_lanes(scratch.weights + t, reinterpret_cast<Vector>(keep & reinterpret_cast<Mask>(ones)), weight);
    }
  }
}
