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
  if constexpr (N > 32) return reinterpret_cast<Doubles>(_mm512_i64gather_pd(index, table, 8));
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
    for (int i = 0; i < N; ++i) {  // where there are fewer clients than are sorted, the others have no weight
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

// Where whoever is beyond a cut is put at it, the weight up to the lower cut is on it and that from the upper one on
// likewise: with the share taken off both this is the sum of what is kept.
template <class E>
struct Drawn {
  Doubles sums[E::parts];

  FEDINCENTIVE_INLINE Drawn() {
    for (int part = 0; part < E::parts; ++part) sums[part] = Doubles{};
  }
  FEDINCENTIVE_INLINE void add(typename E::Vector value, const Range<E>& ends, double weight) {
    const auto drawn = smaller(larger(value, ends.least), ends.most);
    const Doubles wide = weight - Doubles{};
    for (int part = 0; part < E::parts; ++part) sums[part] += widen_part(drawn, part) * wide;
  }
  FEDINCENTIVE_INLINE void put_aside(const TileJob& job, const Scratch& scratch, int t, const Range<E>& ends,
                                     double kept) const {
    const Doubles share = Doubles{} + job.share;
    for (int part = 0; part < E::parts; ++part) {
      const int at = t + part * (kVector / 8);
      const Doubles low = widen_part(ends.least, part), high = widen_part(ends.most, part);
      const auto single = reinterpret_cast<LongMask>(low == high);
      store(scratch.sums + at, choose<Wides>(single, low * kept, sums[part] - (share * low + share * high)));
      store(scratch.weights + at, Doubles{} + kept);
    }
  }
};

// What of the weight is kept.
inline double kept_weight(const TileJob& job) {
  double all = 0;
  for (int64_t client = 0; client < job.clients; ++client) all += job.weights[client];
  return all - 2 * job.share;
}

template <class E>
void sum_searched_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  line_up<E>(job, scratch, begin, count);
  const auto* weights = job.clients > kMostGuessed ? nullptr : about_weights<E>(job, scratch.staging);
  const double kept = kept_weight(job);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    const auto* row = reinterpret_cast<const typename E::Lane*>(scratch.wires) + t * job.clients;
    const Range<E> ends = kept_by_weight<E>(job, row, weights);
    Drawn<E> drawn;
    for (int64_t client = 0; client < job.clients; ++client)
      drawn.add(load<typename E::Vector>(row + client * kLanes<E>), ends, job.weights[client]);
    drawn.put_aside(job, scratch, t, ends, kept);
  }
}

// Up to kMostKeyed clients' values as whole numbers in the same order, the last bits of which say whose they are: one
// comparator sorts both. A cut is then the value of the client with whom the weight that has passed gets past the
// share. Values that differ in the last bits alone, and weights that differ by rounding, are not told apart: where that
// may matter the cut is found again, for the one coordinate.
constexpr int kMostKeyed = 128;

// The weights, as floats, of the clients in `whose` from a table of N.
template <int N>
FEDINCENTIVE_INLINE Floats about_weights_of(const float* table, IntMask whose) {
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
  const auto index = reinterpret_cast<__m512i>(whose);
  const auto some = [&](int from) {
    return _mm512_permutex2var_ps(load<Floats>(table + from), index, load<Floats>(table + from + 16));
  };
  Floats found = some(0);
  if constexpr (N > 32)
    found = _mm512_mask_mov_ps(found, _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)), some(32));
  if constexpr (N > 64) {
    const Floats upper = _mm512_mask_mov_ps(some(64), _mm512_test_epi32_mask(index, _mm512_set1_epi32(32)), some(96));
    found = _mm512_mask_mov_ps(found, _mm512_test_epi32_mask(index, _mm512_set1_epi32(64)), upper);
  }
  return found;
#elif defined(__AVX2__) && FEDINCENTIVE_VECTOR_BYTES == 32
  return _mm256_i32gather_ps(table, reinterpret_cast<__m256i>(whose), 4);
#else
  Floats found;
  for (int lane = 0; lane < kVector / 4; ++lane) found[lane] = table[whose[lane]];
  return found;
#endif
}

// The weights, also as floats, and the share with what rounding may have added to their sums.
template <int N>
struct ShareTable {
  static constexpr double doubt = 4e-6;
  alignas(64) float about[N < 32 ? 32 : N] = {};
  alignas(64) double exact[N] = {};
  float share;

  explicit ShareTable(const TileJob& job) : share(static_cast<float>(job.share + doubt)) {
    for (int64_t i = 0; i < job.clients; ++i) about[i] = static_cast<float>(exact[i] = job.weights[i]);
  }
};

// Where the weight gets past the share: the key there, those before and after it, and the weight before it.
template <int N>
struct Passing {
  IntMask cut, before, after;
  Floats passed, under;

  FEDINCENTIVE_INLINE void pass(const ShareTable<N>& table, const IntMask* keys, int at, int step) {
    const auto here = not_above(passed, Floats{} + table.share);
    cut = pick(here, keys[at], cut);
    before = pick(here, keys[at - step], before);
    after = pick(here, keys[at + step], after);
    under = larger_where(here, under, passed);
    passed += about_weights_of<N>(table.about, keys[at] & (N - 1));
  }
  // Where the weight before it is not nearly the share.
  FEDINCENTIVE_INLINE IntMask sure(const ShareTable<N>& table) const {
    return reinterpret_cast<IntMask>(under < Floats{} + (table.share - static_cast<float>(2 * table.doubt))) &
           reinterpret_cast<IntMask>(passed > Floats{} + table.share);
  }
  // Where no other value is near.
  FEDINCENTIVE_INLINE IntMask alone() const {
    return reinterpret_cast<IntMask>(((cut ^ before) & ~(N - 1)) != 0) &
           reinterpret_cast<IntMask>(((cut ^ after) & ~(N - 1)) != 0);
  }

  // The same from the start with the exact weights.
  void pass_exactly(const TileJob& job, const ShareTable<N>& table, const IntMask* keys, int at, int step) {
    typedef int32_t HalfMask __attribute__((vector_size(kVector / 2)));
    Doubles weights[2] = {};
    for (int i = 0; i < job.past_share; ++i, at += step) {
      HalfMask parts[2];
      for (int part = 0; part < 2; ++part) {
        const auto more = reinterpret_cast<LongMask>(weights[part] > Doubles{} + (job.share + kNothing));
        parts[part] = __builtin_convertvector(~more, HalfMask);
        weights[part] += weights_of<N>(table.exact, keys[at] & (N - 1), part);
      }
      IntMask here;
      std::memcpy(&here, parts, sizeof here);
      cut = pick(where_of(here), keys[at], cut);
      before = pick(where_of(here), keys[at - step], before);
      after = pick(where_of(here), keys[at + step], after);
    }
  }
};

// The value at the cut of one lane: what the keys do not tell apart is sorted by its values.
template <int N>
float exact_cut(const TileJob& job, const float* const* from, int t, int lane, const IntMask* keys, int at, int step) {
  const auto* lanes = reinterpret_cast<const int32_t*>(keys) + lane;
  const auto key = [&](int i) { return lanes[(at + i * step) * kLanes<Singles>]; };
  const int clients = static_cast<int>(job.clients);
  double passed = 0;
  float values[N];
  int whose[N];
  for (int begin = 0, end = 0; begin < clients; begin = end) {
    for (; end < clients && ((key(begin) ^ key(end)) & ~(N - 1)) == 0; ++end) {
      const int client = key(end) & (N - 1);
      const float sent = from[client][t + lane], value = sent == sent ? sent : __builtin_inff();
      int to = end;
      for (; to > begin && (step > 0 ? values[to - 1] > value : values[to - 1] < value); --to) {
        values[to] = values[to - 1];
        whose[to] = whose[to - 1];
      }
      values[to] = value;
      whose[to] = client;
    }
    for (int i = begin; i < end; ++i) {
      passed += job.weights[whose[i]];
      if (passed > job.share + kNothing) return values[i];
    }
  }
  return values[clients - 1];
}

// The values at the cuts. Where many lanes are not sure, as with equal weights, all are gone through again at once.
template <int N>
FEDINCENTIVE_INLINE Floats cuts_of(const TileJob& job, const float* const* from, int t, const ShareTable<N>& table,
                                   Passing<N>& passing, const IntMask* keys, int at, int step) {
  constexpr int lanes = kLanes<Singles>;
  int32_t whose[lanes], right[lanes];
  float values[lanes];
  IntMask all_right = passing.sure(table) & passing.alone();
  if (!all_true(all_right)) {
    store(right, all_right);
    int number = 0;
    for (int lane = 0; lane < lanes; ++lane) number -= right[lane];
    if (number < lanes / 2) {
      passing.pass_exactly(job, table, keys, at, step);
      all_right = passing.alone();
    }
  }
  store(whose, passing.cut & (N - 1));
  for (int lane = 0; lane < lanes; ++lane) values[lane] = from[whose[lane]][t + lane];
  if (!all_true(all_right)) {
    store(right, all_right);
    for (int lane = 0; lane < lanes; ++lane)
      if (!right[lane]) values[lane] = exact_cut<N>(job, from, t, lane, keys, at, step);
  }
  return read_ordered<Singles>(values);
}

template <int N, int Some = N>
void sum_keyed_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  constexpr int32_t most = 0x7fffffff;
  const int clients = static_cast<int>(job.clients);
  const ShareTable<N> table(job);
  const double kept = kept_weight(job);
  const float* from[N];
  auto* beyond = reinterpret_cast<float*>(scratch.high);  // where there are fewer clients than are sorted
  for (int t = 0; t < kTile<Singles>; t += kLanes<Singles>) store(beyond + t, Floats{} + __builtin_inff());
  for (int i = clients; i < Some; ++i) from[i] = beyond;
  const bool in_place = sources<Singles>(job, scratch, 0, clients, begin, count, from);
  IntMask sorted[Some + 2], *keys = sorted + 1;  // with one that is never near at each end
  keys[-1] = IntMask{} - most;
  keys[Some] = IntMask{} + most;
  for (int t = 0; t < kTile<Singles>; t += kLanes<Singles>) {
    if (in_place) ask_for_tiles<Singles>(from, clients, 0, t);
    sort_sources<Singles, Some, N>(from, t, 0, keys);
    Passing<N> low{}, high{};
    for (int i = 0; i < job.past_share; ++i) {
      low.pass(table, keys, i, 1);
      high.pass(table, keys, clients - 1 - i, -1);
    }
    const Range<Singles> ends{cuts_of<N>(job, from, t, table, low, keys, 0, 1),
                              cuts_of<N>(job, from, t, table, high, keys, clients - 1, -1)};
    Drawn<Singles> drawn;
    for (int i = 0; i < clients; ++i) drawn.add(read_ordered<Singles>(from[i] + t), ends, job.weights[i]);
    drawn.put_aside(job, scratch, t, ends, kept);
  }
}

// Keys are for floats, and for so many of them that they are the faster way.
inline SumTile keyed_shares(int64_t clients) {
  if (clients <= 8 || clients > kMostKeyed) return nullptr;
  if (clients <= kMaxBlock) return clients <= 12 ? sum_keyed_shares<16, 12> : sum_keyed_shares<16>;
  return clients <= 32 ? sum_keyed_shares<32> : clients <= 64 ? sum_keyed_shares<64> : sum_keyed_shares<kMostKeyed>;
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
  if (const SumTile keyed = E::parts == 2 ? keyed_shares(job.clients) : nullptr)
    return keyed(job, scratch, begin, count);
  if (job.clients > kMostSorted) return sum_searched_shares<E>(job, scratch, begin, count);
  (job.clients > kMaxBlock ? sum_sorted_shares<E, kMostSorted> : few[job.clients])(job, scratch, begin, count);
}

// Kept values that are not finite, and whose they are.
template <class E>
void examine_shares(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, double* means) {
  using Lane = typename E::Lane;
  Lane low[kTile<E>], high[kTile<E>];
  line_up<E>(job, scratch, begin, count);
  const auto* weights = job.clients > kMostGuessed ? nullptr : about_weights<E>(job, scratch.staging);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    const auto* row = reinterpret_cast<const Lane*>(scratch.wires) + t * job.clients;
    const Range<E> ends = kept_by_weight<E>(job, row, weights);
    store(low + t, ends.least);
    store(high + t, ends.most);
  }
  bool nan[kTile<E>] = {}, above[kTile<E>] = {}, beneath[kTile<E>] = {};
  for (int64_t client = 0; client < job.clients; ++client) {
    const Lane* sent = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    if (all_numbers<E>(sent, kTile<E>)) continue;
    for (int64_t t = 0; t < count; ++t) {
      const Lane value = sent[t] == sent[t] ? sent[t] : static_cast<Lane>(__builtin_inf());
      if (value - value == 0 || value < low[t] || value > high[t]) continue;
      if (job.unusual->guilty) job.unusual->guilty[client] = 1;
      nan[t] |= sent[t] != sent[t];
      (value > 0 ? above : beneath)[t] = true;
    }
  }
  for (int64_t t = 0; t < count; ++t) {
    if (!above[t] && !beneath[t]) continue;
    ++job.unusual->not_finite;
    means[t] = nan[t] || (above[t] && beneath[t]) ? __builtin_nan("") : above[t] ? __builtin_inf() : -__builtin_inf();
  }
}
