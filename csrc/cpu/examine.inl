// What is done about a tile whose results are not finite: infinities and NaN that are kept are counted and their
// clients noted; sums of finite values that overflowed are taken again, scaled. Included by kernels.inl inside its
// namespace.

constexpr int kAside = kGroup * kSpan * 4;  // bytes: the upper half of the staging rows is free here

template <class E>
bool all_numbers(const typename E::Lane* from, int64_t count) {  // a whole number of vectors, in the cache
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

// How many lanes are true.
inline int64_t number_of(LongMask mask) {
  int64_t number = 0;
  for (int lane = 0; lane < kVector / 8; ++lane) number -= mask[lane];
  return number;
}

FEDINCENTIVE_INLINE LongMask not_numbers(Doubles values) {
  return ~reinterpret_cast<LongMask>((values - values) == Doubles{});
}

// Where nothing is trimmed every value is kept.
template <class E>
void examine_means(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  using Vector = typename E::Vector;
  const int64_t full = padded(count);
  Lane* seen = reinterpret_cast<Lane*>(scratch.staging + kAside);  // not 0 where a client's value is not finite
  std::memset(seen, 0, kSpan * sizeof(Lane));
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, full, 0);
    if (all_numbers<E>(from, full)) continue;
    if (job.unusual->guilty) job.unusual->guilty[client] = 1;
    for (int t = 0; t < full; t += kLanes<E>) {
      const Vector value = load<Vector>(from + t);
      store(seen + t, load<Vector>(seen + t) + (value - value));
    }
  }
  LongMask not_finite{}, weightless{}, overflowed{};
  const LongMask none = job.divisor == 0 ? ~LongMask{} : LongMask{};
  for (int t = 0; t < full; t += kVector / 8) {
    const LongMask bad = not_numbers(load<Doubles>(means + t));
    const LongMask sent = bad & reinterpret_cast<LongMask>(load_wide(seen + t) != Doubles{});
    not_finite += sent;
    weightless += bad & none;
    overflowed |= bad & ~sent & ~none;
  }
  job.unusual->not_finite += number_of(not_finite);
  job.unusual->weightless += number_of(weightless);
  if (all_true(~overflowed)) return;
  const double shrink = shrink_of(job.clients);
  double* scaled = reinterpret_cast<double*>(scratch.staging + kAside + kAside / 2);
  fill(scaled, 0, kSpan);
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, full, 0);
    const double weight = job.weights ? job.weights[client] : 1;
    for (int t = 0; t < full; t += kVector / 8)
      store(scaled + t, load<Doubles>(scaled + t) + load_wide(from + t) * shrink * weight);
  }
  for (int t = 0; t < full; t += kVector / 8) {
    const Doubles value = load<Doubles>(means + t);
    const LongMask again = not_numbers(value) & reinterpret_cast<LongMask>(load_wide(seen + t) == Doubles{});
    store(means + t, choose<Wides>(again, load<Doubles>(scaled + t) / job.divisor * (1 / shrink), value));
  }
}

// How many of each coordinate's values are -infinity, infinity, NaN, and how many of them have been seen in the order
// of the clients: a stable sort puts them in this order at the ends, so their ranks are known without sorting.
template <class E>
struct Bad {
  using Count = typename E::Count;
  using Mask = typename E::Mask;
  Count *number[3], *seen[3], *kept[3];  // kept: -1 where one of the kind is

  explicit Bad(const Scratch& scratch) {
    Count* row = reinterpret_cast<Count*>(scratch.staging + kAside);
    for (int kind = 0; kind < 3; ++kind) number[kind] = row + kind * kTile<E>;
    for (int kind = 0; kind < 3; ++kind) seen[kind] = row + (3 + kind) * kTile<E>;
    for (int kind = 0; kind < 3; ++kind) kept[kind] = row + (6 + kind) * kTile<E>;
    std::memset(row, 0, 9 * kTileBytes);
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
  // The rank of the first of each kind.
  FEDINCENTIVE_INLINE void first_ranks(const TileJob& job, int t, Mask* first) const {
    first[0] = Mask{};
    first[2] = Mask{} + static_cast<Count>(job.clients) - load<Mask>(number[2] + t);
    first[1] = first[2] - load<Mask>(number[1] + t);
  }
  // Which kinds are kept, whoever sent them.
  void keep_any(const TileJob& job) {
    const Mask least = Mask{} + static_cast<Count>(job.trim),
               most = Mask{} + static_cast<Count>(job.clients - job.trim);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      Mask first[3];
      first_ranks(job, t, first);
      for (int kind = 0; kind < 3; ++kind) {
        const Mask some = load<Mask>(number[kind] + t), end = first[kind] + some;
        store(kept[kind] + t, reinterpret_cast<Mask>(some > Mask{}) & reinterpret_cast<Mask>(first[kind] < most) &
                                  reinterpret_cast<Mask>(end > least));
      }
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
      first_ranks(job, t, first);
      for (int kind = 0; kind < 3; ++kind) {
        const Mask before = load<Mask>(seen[kind] + t), rank = first[kind] + before;
        const Mask stays = is[kind] & reinterpret_cast<Mask>(rank >= least) & reinterpret_cast<Mask>(rank < most);
        any |= stays;
        store(seen[kind] + t, before - is[kind]);
        Count* to = kept[weightless ? 2 : kind] + t;
        store(to, load<Mask>(to) | stays);
      }
    }
    return !all_true(reinterpret_cast<Mask>(any == Mask{}));
  }
};

// Clients matter one by one where it is asked whose values are kept, or where one of them has no weight.
inline bool clients_matter(const TileJob& job) {
  bool matter = job.unusual->guilty != nullptr;
  for (int64_t client = 0; job.weights && client < job.clients; ++client) matter |= job.weights[client] == 0;
  return matter;
}

template <class E>
void examine_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  using Mask = typename E::Mask;
  constexpr int lanes = kVector / 8;
  Bad<E> bad(scratch);
  bool any = false;
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    if (all_numbers<E>(from, kTile<E>)) continue;
    any = true;
    bad.count(from);
  }
  if (any && clients_matter(job)) {
    for (int64_t client = 0; client < job.clients; ++client) {
      const Lane* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
      if (all_numbers<E>(from, kTile<E>)) continue;
      const bool kept = bad.keep(job, from, job.weights && job.weights[client] == 0);
      if (kept && job.unusual->guilty) job.unusual->guilty[client] = 1;
    }
  } else if (any) {
    bad.keep_any(job);
  }
  double* right = reinterpret_cast<double*>(scratch.staging + kAside + kAside / 2);
  int64_t* again = reinterpret_cast<int64_t*>(right + kTile<E>);  // -1 where sums overflowed and are taken again
  LongMask not_finite{}, weightless{}, overflowed{};
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    for (int part = 0; part < E::parts; ++part) {
      const int at = t + part * lanes;
      LongMask kept[3];
      for (int kind = 0; kind < 3; ++kind) kept[kind] = widen_mask(load<Mask>(bad.kept[kind] + t), part);
      const Doubles value = load<Doubles>(means + at), infinity = Doubles{} + __builtin_inf();
      const LongMask unusual = not_numbers(value), sent = unusual & (kept[0] | kept[1] | kept[2]);
      const LongMask none = job.divisor == 0
                                ? unusual & reinterpret_cast<LongMask>(load<Doubles>(scratch.weights + at) == Doubles{})
                                : LongMask{};
      const LongMask nan = sent & (none | kept[2] | (kept[0] & kept[1]));
      Doubles result = choose<Wides>(sent, choose<Wides>(kept[0], -infinity, infinity), value);
      result = choose<Wides>(nan, Doubles{} + __builtin_nan(""), result);
      store(right + at, result);
      store(again + at, unusual & ~sent & ~none);
      not_finite += sent;
      weightless += none;
      overflowed |= unusual & ~sent & ~none;
    }
  }
  job.unusual->not_finite += number_of(not_finite);
  job.unusual->weightless += number_of(weightless);
  if (!all_true(~overflowed)) {
    TileJob scaled = job;
    scaled.shrink = shrink_of(job.clients);
    if (job.weights) {
      sum_weighted_trimmed<E>(scaled, scratch, begin, count);
    } else if (cut_by_search(job.clients, job.trim)) {
      sum_cut<E>(scaled, scratch, begin, count);
    } else {
      fill(scratch.sums, 0, kTile<E>);
      run_plan<E>(scaled, scratch, begin, count, AddScaled{scratch.sums, scaled.shrink});
    }
    for (int t = 0; t < kTile<E>; t += lanes) {
      const Doubles divisor = job.divisor == 0 ? load<Doubles>(scratch.weights + t) : Doubles{} + job.divisor;
      const Doubles mean = load<Doubles>(scratch.sums + t) / divisor * (1 / scaled.shrink);
      store(right + t, choose<Wides>(load<LongMask>(again + t), mean, load<Doubles>(right + t)));
    }
  }
  std::memcpy(means, right, static_cast<size_t>(count) * 8);
}
