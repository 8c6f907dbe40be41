// What is done about a tile whose results are not finite: infinities and NaN that are kept are counted and their
// clients noted; sums of finite values that overflowed are taken again, scaled. Included by kernels.inl inside its
// namespace.

constexpr int kAside = kGroup * kSpan * 4;  // bytes: the upper half of the staging rows is free here

template <class E>
bool all_numbers(const typename E::Lane* from, int count) {  // a whole number of vectors, in the cache
  typename E::Vector sum{};
  for (int t = 0; t < count; t += kLanes<E>) {
    const auto value = load<typename E::Vector>(from + t);
    sum += value - value;
  }
  return all_true(reinterpret_cast<typename E::Mask>(sum == typename E::Vector{}));
}

// A power of two by which the values of all clients can be added without overflow.
inline double shrink_of(int64_t clients) {
  double shrink = 0.25;
  for (; clients > 1; clients /= 2) shrink /= 2;
  return shrink;
}

// Where nothing is trimmed every value is kept.
template <class E>
void examine_means(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  using Vector = typename E::Vector;
  Lane* seen = reinterpret_cast<Lane*>(scratch.staging + kAside);  // not 0 where a client's value is not finite
  std::memset(seen, 0, kSpan * sizeof(Lane));
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, kSpan, 0);
    if (all_numbers<E>(from, kSpan)) continue;
    job.unusual->guilty[client] = 1;
    for (int t = 0; t < kSpan; t += kLanes<E>) {
      const Vector value = load<Vector>(from + t);
      store(seen + t, load<Vector>(seen + t) + (value - value));
    }
  }
  bool overflowed = false;
  for (int64_t t = 0; t < count; ++t) {
    if (means[t] - means[t] == 0) continue;
    if (seen[t] != 0) ++job.unusual->not_finite;
    if (job.divisor == 0) ++job.unusual->weightless;
    overflowed |= seen[t] == 0 && job.divisor != 0;
  }
  if (!overflowed) return;
  const double shrink = shrink_of(job.clients);
  double* scaled = reinterpret_cast<double*>(scratch.staging + kAside + kAside / 2);
  fill(scaled, 0, kSpan);
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, kSpan, 0);
    const double weight = job.weights ? job.weights[client] : 1;
    for (int t = 0; t < kSpan; t += kVector / 8)
      store(scaled + t, load<Doubles>(scaled + t) + load_wide(from + t) * shrink * weight);
  }
  for (int64_t t = 0; t < count; ++t)
    if (!(means[t] - means[t] == 0) && seen[t] == 0) means[t] = scaled[t] / job.divisor / shrink;
}

// How many of each coordinate's values are -infinity, infinity, NaN, and how many of them have been seen in the order
// of the clients: a stable sort puts them in this order at the ends, so their ranks are known without sorting.
template <class E>
struct Bad {
  using Count = typename E::Count;
  using Mask = typename E::Mask;
  Count *number[3], *seen[3], *kept;  // kept: bits 1, 2, 4 for the three kinds

  explicit Bad(const Scratch& scratch) {
    Count* row = reinterpret_cast<Count*>(scratch.staging + kAside);
    for (int kind = 0; kind < 3; ++kind) number[kind] = row + kind * kTile<E>;
    for (int kind = 0; kind < 3; ++kind) seen[kind] = row + (3 + kind) * kTile<E>;
    kept = row + 6 * kTile<E>;
    std::memset(row, 0, 7 * kTileBytes);
  }
  static FEDINCENTIVE_INLINE void kinds(typename E::Vector value, Mask* is) {
    const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
    is[0] = reinterpret_cast<Mask>(value == -infinity);
    is[1] = reinterpret_cast<Mask>(value == infinity);
    is[2] = reinterpret_cast<Mask>(value != value);
  }
  void count(const typename E::Lane* from) {
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      Mask is[3];
      kinds(load<typename E::Vector>(from + t), is);
      for (int kind = 0; kind < 3; ++kind) store(number[kind] + t, load<Mask>(number[kind] + t) - is[kind]);
    }
  }
  // Whether one of this client's is kept. An infinity times a weight of 0 counts as NaN.
  bool keep(const TileJob& job, const typename E::Lane* from, bool weightless) {
    const Mask least = Mask{} + static_cast<Count>(job.trim),
               most = Mask{} + static_cast<Count>(job.clients - job.trim);
    Mask any{};
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      Mask is[3], first[3];
      kinds(load<typename E::Vector>(from + t), is);
      first[0] = Mask{};
      first[2] = Mask{} + static_cast<Count>(job.clients) - load<Mask>(number[2] + t);
      first[1] = first[2] - load<Mask>(number[1] + t);
      for (int kind = 0; kind < 3; ++kind) {
        const Mask before = load<Mask>(seen[kind] + t), rank = first[kind] + before;
        const Mask stays = is[kind] & reinterpret_cast<Mask>(rank >= least) & reinterpret_cast<Mask>(rank < most);
        any |= stays;
        store(seen[kind] + t, before - is[kind]);
        store(kept + t, load<Mask>(kept + t) | (stays & static_cast<Count>(weightless ? 4 : 1 << kind)));
      }
    }
    return !all_true(reinterpret_cast<Mask>(any == Mask{}));
  }
};

template <class E>
void examine_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  Bad<E> bad(scratch);
  bool any = false;
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    if (all_numbers<E>(from, kTile<E>)) continue;
    any = true;
    bad.count(from);
  }
  for (int64_t client = 0; any && client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    if (all_numbers<E>(from, kTile<E>)) continue;
    if (bad.keep(job, from, job.weights && job.weights[client] == 0)) job.unusual->guilty[client] = 1;
  }
  bool overflowed = false;
  double* right = reinterpret_cast<double*>(scratch.staging + kAside + kAside / 2);
  for (int64_t t = 0; t < count; ++t) {
    right[t] = means[t];
    if (means[t] - means[t] == 0) continue;
    const bool weightless = job.divisor == 0 && scratch.weights[t] == 0;
    if (weightless) ++job.unusual->weightless;
    if (bad.kept[t]) {
      ++job.unusual->not_finite;
      const double infinity = __builtin_inf();
      right[t] = weightless || bad.kept[t] & 4 || bad.kept[t] == 3 ? __builtin_nan("")
                                                                   : (bad.kept[t] == 1 ? -infinity : infinity);
    } else if (!weightless) {
      right[t] = __builtin_nan("");  // to be taken from the scaled sums
      bad.kept[t] = -1;
      overflowed = true;
    }
  }
  if (overflowed) {
    TileJob again = job;
    again.shrink = shrink_of(job.clients);
    if (job.weights) {
      sum_weighted_trimmed<E>(again, scratch, begin, count);
    } else if (cut_by_search(job.clients, job.trim)) {
      sum_cut<E>(again, scratch, begin, count);
    } else {
      fill(scratch.sums, 0, kTile<E>);
      run_plan<E>(again, scratch, begin, count, AddScaled{scratch.sums, again.shrink});
    }
    for (int64_t t = 0; t < count; ++t)
      if (bad.kept[t] == -1)
        right[t] = scratch.sums[t] / (job.divisor == 0 ? scratch.weights[t] : job.divisor) / again.shrink;
  }
  std::memcpy(means, right, static_cast<size_t>(count) * 8);
}
