// Keys sorted in registers and in parts; and the middle of clients' values where that is the fastest way: both halves
// of them are sorted, and of two sorted lists the smaller of x_i and y_{n-1-i} are the lower half of all. Included by
// kernels.inl inside its namespace.

// Of two halves that are each in order, one after the other but the second one turned round: in order.
template <int N, class V>
void merge_keys(V* keys) {
  constexpr int half = N / 2;
  if constexpr (N <= 2 * kMaxBlock) {
    V values[N];
    for (int i = 0; i < N; ++i) values[i] = keys[i];
    for (int i = 0; i < half; ++i) exchange(values[i], values[i + half]);
    sort_bitonic<half, true>(values);
    sort_bitonic<half, true>(values + half);
    for (int i = 0; i < N; ++i) keys[i] = values[i];
  } else {
    for (int i = 0; i < half; ++i) exchange(keys[i], keys[i + half]);
    merge_keys<half>(keys);
    merge_keys<half>(keys + half);
  }
}

// The keys of N sources, in order: up to 32 are sorted in registers, more of them in parts. Where there is an `Of`, a
// power of two, the last bits of a key are made to say which of so many sources it is from: the first is number
// `first`.
template <class E, int N, int Of>
void sort_sources(const typename E::Lane* const* from, int t, int first, typename E::Key* keys) {
  using Key = typename E::Key;
  constexpr int half = N / 2;
  if constexpr (N <= 2 * kMaxBlock) {
    Key values[N];
    for (int i = 0; i < N; ++i) {
      values[i] = converted<Key>(read_ordered<E>(from[i] + t));
      if constexpr (Of > 0) values[i] = (values[i] & ~(Of - 1)) | (Key{} + (first + i));
    }
    sort_ends<N, N>(values);
    for (int i = 0; i < N; ++i) keys[i] = values[i];
  } else {
    sort_sources<E, half, Of>(from, t, first, keys);
    sort_sources<E, half, Of>(from + half, t, first + half, keys + half);
    for (int i = 0; i < half; ++i) exchange(keys[i], keys[N - 1 - i]);
    merge_keys<half>(keys);
    merge_keys<half>(keys + half);
  }
}

// As many infinities are put below as above the values, so that there are N of them.
template <class E, int N>
void sum_middles(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Lane = typename E::Lane;
  using Vector = typename E::Vector;
  constexpr int half = N / 2;
  const int clients = static_cast<int>(job.clients), least = half - (clients + 1) / 2;
  auto *lowest = reinterpret_cast<Lane*>(scratch.low), *highest = reinterpret_cast<Lane*>(scratch.high);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    store(lowest + t, Vector{} - static_cast<Lane>(__builtin_inf()));
    store(highest + t, Vector{} + static_cast<Lane>(__builtin_inf()));
  }
  const Lane* from[N];
  for (int i = 0; i < N; ++i) from[i] = i < least ? lowest : highest;
  const bool in_place = sources<E>(job, scratch, 0, clients, begin, count, from + least);
  typename E::Key keys[N];
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    if (in_place) ask_for_tiles<E>(from + least, clients, 0, t);
    sort_sources<E, half, 0>(from, t, 0, keys);
    sort_sources<E, half, 0>(from + half, t, 0, keys + half);
    auto low = smaller(keys[0], keys[N - 1]), high = larger(keys[N - 1], keys[0]);
#pragma GCC unroll 4
    for (int i = 1; i < half; ++i) {
      low = larger(low, smaller(keys[i], keys[N - 1 - i]));
      high = smaller(high, larger(keys[N - 1 - i], keys[i]));
    }
    for (int part = 0; part < E::parts; ++part) {
      Doubles sum = Doubles{} + widen_part(converted<Vector>(low), part);  // from +0, as elsewhere
      if (clients % 2 == 0) sum += widen_part(converted<Vector>(high), part);
      store(scratch.sums + t + part * (kVector / 8), sum);
    }
  }
}

// The function for n clients of whom one or two in the middle are kept, or null where a plan is faster: it sorts less.
template <class E>
SumTile middle_sum(int64_t n, int64_t k) {
  static constexpr SumTile few[] = {sum_few<E, 3, 8>,  sum_few<E, 4, 9>,  sum_few<E, 4, 10>,
                                    sum_few<E, 5, 11>, sum_few<E, 5, 12>, sum_few<E, 6, 13>,
                                    sum_few<E, 6, 14>, sum_few<E, 7, 15>, sum_few<E, 7, 16>};
  if (n - 2 * k > 2) return nullptr;
  if (n >= 8 && n <= kMaxBlock) return few[n - 8];
  return n >= 28 && n <= 32 ? sum_middles<E, 32> : n >= 52 && n <= 64 ? sum_middles<E, 64> : nullptr;
}
