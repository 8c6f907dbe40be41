// The sums of a mean trimmed by weight: the weight from `share` to 1 - share is averaged (weights add up to 1), and
// whoever is at an end keeps what is left of their own. Included by kernels.inl inside its namespace.

// Few clients: their values are sorted in registers, together with whose they are.
constexpr int kMostSorted = 2 * kMaxBlock;

template <class E>
FEDINCENTIVE_INLINE void exchange_with(typename E::Vector& a, typename E::Vector& b, typename E::Mask& of_a,
                                       typename E::Mask& of_b) {
  const auto swap = below(b, a);
  const typename E::Vector low = smaller(b, a);
  b = larger(a, b);
  a = low;
  const typename E::Mask first = pick(swap, of_b, of_a);
  of_b = pick(swap, of_a, of_b);
  of_a = first;
}

template <class E, int N>
FEDINCENTIVE_INLINE void sort_with_clients(typename E::Vector* values, typename E::Mask* whose) {
  if constexpr (N == kMostSorted) {
    sort_with_clients<E, N / 2>(values, whose);
    sort_with_clients<E, N / 2>(values + N / 2, whose + N / 2);
    for (int i = 0; i < N / 2; ++i) exchange_with<E>(values[i], values[N - 1 - i], whose[i], whose[N - 1 - i]);
    for (int half = 0; half < N; half += N / 2) {
      using Network = BitonicNetwork<N / 2, true>;
#pragma GCC unroll 64
      for (int c = 0; c < Network::count; ++c) {
        const int a = half + Network::pairs.at[c][0], b = half + Network::pairs.at[c][1];
        exchange_with<E>(values[a], values[b], whose[a], whose[b]);
      }
    }
  } else {
    using Network = SortingNetwork<N>;
#pragma GCC unroll 64
    for (int c = 0; c < Network::count; ++c) {
      const int a = Network::pairs[c][0], b = Network::pairs[c][1];
      exchange_with<E>(values[a], values[b], whose[a], whose[b]);
    }
  }
}

// The weights of one part of the clients in `whose`, from a table of N.
template <int N, class M>
FEDINCENTIVE_INLINE Doubles weights_of(const double* table, M whose, int part) {
  const LongMask clients = widen_mask(whose, part);
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
  const auto index = reinterpret_cast<__m512i>(clients);
  const auto some = [&](int from) {
    return _mm512_permutex2var_pd(load<Doubles>(table + from), index, load<Doubles>(table + from + 8));
  };
  if constexpr (N <= 16) return some(0);
  return _mm512_mask_mov_pd(some(0), _mm512_test_epi64_mask(index, _mm512_set1_epi64(16)), some(16));
#else
  Doubles found;
  for (int lane = 0; lane < kVector / 8; ++lane) found[lane] = table[clients[lane]];
  return found;
#endif
}

template <class E, int N>
void sum_sorted_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  const typename E::Lane* from[N];
  alignas(64) double table[kMostSorted] = {};
  const int clients = static_cast<int>(job.clients);
  for (int i = 0; i < clients; ++i) from[i] = source<E>(job, scratch, i, begin, count, kTile<E>, i);
  for (int i = 0; i < clients; ++i) table[i] = job.weights[i];
  const Doubles share = Doubles{} + job.share, rest = Doubles{} + (1 - job.share);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    read_ahead<kFar>(from, clients, t);
    Vector values[N];
    Mask whose[N];
    for (int i = 0; i < N; ++i) {  // where there are fewer clients than N, the others have no weight
      values[i] = N > kMaxBlock && i >= clients ? Vector{} + static_cast<typename E::Lane>(__builtin_inf())
                                                : read_ordered<E>(from[i] + t);
      whose[i] = Mask{} + static_cast<typename E::Count>(i);
    }
    sort_with_clients<E, N>(values, whose);
    for (int part = 0; part < E::parts; ++part) {
      Doubles passed{}, sums{}, weights{};
      for (int i = 0; i < N; ++i) {
        const Doubles start = larger(passed, share);
        passed += weights_of<N>(table, whose[i], part);
        const Doubles kept = smaller(passed, rest) - start;
        const auto where = below(Doubles{} + kNothing, kept);
        sums += only(where, kept) * only(where, widen_part(values[i], part));
        weights += only(where, kept);
      }
      store(scratch.sums + t + part * (kVector / 8), sums);
      store(scratch.weights + t + part * (kVector / 8), weights);
    }
  }
}

// The weighted sum strictly between two ends, and the weights up to the lower one and from the upper one on.
template <class E>
struct Shares {
  Doubles sums[E::parts] = {}, lower[E::parts] = {}, upper[E::parts] = {};

  FEDINCENTIVE_INLINE void add(typename E::Vector value, const Range<E>& ends, double weight) {
    const auto not_above_low = not_above(value, ends.least), not_below_high = not_above(ends.most, value);
    const auto between = only(elsewhere(not_above_low), only(elsewhere(not_below_high), value));
    for (int part = 0; part < E::parts; ++part) {
      sums[part] += widen_part(between, part) * weight;
      lower[part] = add_where(not_above_low, part, lower[part], Doubles{} + weight);
      upper[part] = add_where(not_below_high, part, upper[part], Doubles{} + weight);
    }
  }
};

template <class E>
void sum_searched_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  line_up<E>(job, scratch, begin, count);
  const auto* weights = job.clients > kMostGuessed ? nullptr : about_weights<E>(job, scratch);
  double all = 0;
  for (int64_t client = 0; client < job.clients; ++client) all += job.weights[client];
  const Doubles kept = Doubles{} + (all - 2 * job.share), share = Doubles{} + job.share;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    const auto* row = reinterpret_cast<const typename E::Lane*>(scratch.wires) + t * job.clients;
    const Range<E> ends = kept_by_weight<E>(job, row, weights);
    Shares<E> shares;
    for (int64_t client = 0; client < job.clients; ++client)
      shares.add(load<Vector>(row + client * kLanes<E>), ends, job.weights[client]);
    for (int part = 0; part < E::parts; ++part) {
      const int at = t + part * (kVector / 8);
      const Doubles low = widen_part(ends.least, part), high = widen_part(ends.most, part);
      const auto single = reinterpret_cast<LongMask>(low == high);
      const Doubles sum = shares.sums[part] + low * (shares.lower[part] - share) + high * (shares.upper[part] - share);
      store(scratch.sums + at, reinterpret_cast<Doubles>((single & reinterpret_cast<LongMask>(low * kept)) |
                                                         (~single & reinterpret_cast<LongMask>(sum))));
      store(scratch.weights + at, kept);
    }
  }
}

template <class E>
void sum_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  static constexpr SumTile few[] = {nullptr,
                                    sum_sorted_shares<E, 1>,
                                    sum_sorted_shares<E, 2>,
                                    sum_sorted_shares<E, 3>,
                                    sum_sorted_shares<E, 4>,
                                    sum_sorted_shares<E, 5>,
                                    sum_sorted_shares<E, 6>,
                                    sum_sorted_shares<E, 7>,
                                    sum_sorted_shares<E, 8>,
                                    sum_sorted_shares<E, 9>,
                                    sum_sorted_shares<E, 10>,
                                    sum_sorted_shares<E, 11>,
                                    sum_sorted_shares<E, 12>,
                                    sum_sorted_shares<E, 13>,
                                    sum_sorted_shares<E, 14>,
                                    sum_sorted_shares<E, 15>,
                                    sum_sorted_shares<E, 16>};
  if (job.clients > kMostSorted) return sum_searched_shares<E>(job, scratch, begin, count);
  (job.clients > kMaxBlock ? sum_sorted_shares<E, kMostSorted> : few[job.clients])(job, scratch, begin, count);
}

// Kept values that are not finite, and whose they are.
template <class E>
void examine_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  Lane low[kTile<E>], high[kTile<E>];
  line_up<E>(job, scratch, begin, count);
  const auto* weights = job.clients > kMostGuessed ? nullptr : about_weights<E>(job, scratch);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    const auto* row = reinterpret_cast<const Lane*>(scratch.wires) + t * job.clients;
    const Range<E> ends = kept_by_weight<E>(job, row, weights);
    store(low + t, ends.least);
    store(high + t, ends.most);
  }
  bool unusual[kTile<E>] = {}, nan[kTile<E>] = {};
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* sent = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    if (all_numbers<E>(sent, kTile<E>)) continue;
    for (int64_t t = 0; t < count; ++t) {
      const Lane value = sent[t] == sent[t] ? sent[t] : static_cast<Lane>(__builtin_inf());
      if (value - value == 0 || value < low[t] || value > high[t]) continue;
      if (job.unusual->guilty) job.unusual->guilty[client] = 1;
      unusual[t] = true;
      nan[t] |= sent[t] != sent[t];
    }
  }
  for (int64_t t = 0; t < count; ++t) {
    if (unusual[t]) ++job.unusual->not_finite;
    if (nan[t]) means[t] = __builtin_nan("");
  }
}
