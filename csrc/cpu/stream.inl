// Trimming few per side, k <= kMaxStreamed: the k smallest and k largest so far are kept sorted in k rows each; a block
// of clients is sorted in registers, exchanges its ends with them, and all that is left goes to the sum without ever
// being stored. Included by kernels.inl inside its namespace.

// The rows of state: `low` and `high` of k vectors per kTile lanes, and the float64 sums.
template <class E, int K, int Block, bool First>
void stream_block(const typename E::Lane* const* from, typename E::Lane* rows, double* sums) {
  using Vector = typename E::Vector;
  using Sort = SortingNetwork<Block>;
  static_assert(Block >= 2 * K, "the ends of a block must not overlap");
  constexpr int lanes = kLanes<E>, parts = E::parts;
  for (int t = 0; t < kTile<E>; t += lanes) {
    read_ahead<E>(from, Block, t);
    Vector values[Block], low[K], high[K];
    for (int i = 0; i < Block; ++i) values[i] = read_ordered<E>(from[i] + t);
#pragma GCC unroll 64
    for (int c = 0; c < Sort::count; ++c) exchange(values[Sort::pairs[c][0]], values[Sort::pairs[c][1]]);
    if constexpr (First) {
      for (int i = 0; i < K; ++i) low[i] = values[i];
      for (int i = 0; i < K; ++i) high[i] = values[Block - K + i];
    } else {
      for (int i = 0; i < K; ++i) low[i] = load<Vector>(rows + i * kTile<E> + t);
      for (int i = 0; i < K; ++i) high[i] = load<Vector>(rows + (K + i) * kTile<E> + t);
      for (int i = 0; i < K; ++i) exchange(low[i], values[K - 1 - i]);
      for (int i = 0; i < K; ++i) exchange(values[Block - K + i], high[K - 1 - i]);
      sort_bitonic<K, true>(low);
      sort_bitonic<K, false>(high);
    }
    for (int i = 0; i < K; ++i) store(rows + i * kTile<E> + t, low[i]);
    for (int i = 0; i < K; ++i) store(rows + (K + i) * kTile<E> + t, high[i]);
    constexpr int begin = First ? K : 0, end = First ? Block - K : Block;  // the first block has nothing to exchange
    for (int part = 0; part < parts; ++part) {
      double* to = sums + t + part * (kVector / 8);
      store(to, add_values(First ? Doubles{} : load<Doubles>(to), values + begin, end - begin, part));
    }
  }
}

// One client more: it passes through both lists and what falls out at the end is kept.
template <class E, int K>
void stream_one(const typename E::Lane* from, typename E::Lane* rows, double* sums) {
  using Vector = typename E::Vector;
  constexpr int lanes = kLanes<E>, parts = E::parts;
  for (int t = 0; t < kTile<E>; t += lanes) {
    Vector value = read_ordered<E>(from + t);
    for (int i = 0; i < K; ++i) {
      Vector low = load<Vector>(rows + i * kTile<E> + t);
      exchange(low, value);
      store(rows + i * kTile<E> + t, low);
    }
    for (int i = K - 1; i >= 0; --i) {
      Vector high = load<Vector>(rows + (K + i) * kTile<E> + t);
      exchange(value, high);
      store(rows + (K + i) * kTile<E> + t, high);
    }
    for (int part = 0; part < parts; ++part) {
      double* to = sums + t + part * (kVector / 8);
      store(to, load<Doubles>(to) + widen_part(value, part));
    }
  }
}

// How n clients are divided: blocks of a large size, some of a smaller one, and few single ones.
struct Division {
  int64_t large, small;
};

inline Division divide_clients(int64_t n, int large, int small) {
  Division best{n / large, 0};
  if (small == 0) return best;
  int64_t left = n % large;
  for (int64_t fewer = 0; fewer < 4 && fewer < n / large;
       ++fewer) {  // give up a large block where small ones fit better
    const int64_t rest = n - (n / large - fewer) * large;
    if (rest % small < left) {
      left = rest % small;
      best = {n / large - fewer, rest / small};
    }
  }
  return best;
}

template <class E, int K>
void sum_streamed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  constexpr int large = K <= 4 ? 8 : 16, small = K <= 2 ? 4 : K == 3 ? 6 : K <= 6 && K > 4 ? 12 : 0;
  auto* rows = reinterpret_cast<typename E::Lane*>(scratch.wires);
  const typename E::Lane* from[large];
  int64_t client = 0;
  const auto fetch = [&](int number) {
    for (int i = 0; i < number; ++i) from[i] = source<E>(job, scratch, client + i, begin, count, kTile<E>, i);
    client += number;
  };
  const Division blocks = divide_clients(job.clients, large, small);
  fetch(large);
  stream_block<E, K, large, true>(from, rows, scratch.sums);
  for (int64_t block = 1; block < blocks.large; ++block) {
    fetch(large);
    stream_block<E, K, large, false>(from, rows, scratch.sums);
  }
  if constexpr (small > 0) {
    for (int64_t block = 0; block < blocks.small; ++block) {
      fetch(small);
      stream_block<E, K, small, false>(from, rows, scratch.sums);
    }
  }
  while (client < job.clients) {
    fetch(1);
    stream_one<E, K>(from[0], rows, scratch.sums);
  }
}

// So few clients that they are one block.
template <class E, int K, int N>
void sum_few(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  const typename E::Lane* from[N];
  for (int i = 0; i < N; ++i) from[i] = source<E>(job, scratch, i, begin, count, kTile<E>, i);
  stream_block<E, K, N, true>(from, reinterpret_cast<typename E::Lane*>(scratch.wires), scratch.sums);
}

// The function for n clients and k per side, or null if a plan is needed. k <= 4 walks through tiles of `Short`, others
// through tiles of `Long`, which many clients like better.
template <class Short, class Long>
SumTile streamed_sum(int64_t n, int64_t k) {
  static_assert(kMaxStreamed == 8, "one entry for each k");
  static constexpr SumTile any[] = {sum_streamed<Short, 1>, sum_streamed<Short, 2>, sum_streamed<Short, 3>,
                                    sum_streamed<Short, 4>, sum_streamed<Long, 5>,  sum_streamed<Long, 6>,
                                    sum_streamed<Long, 7>,  sum_streamed<Long, 8>};
  static constexpr SumTile few[3][8] = {
      {nullptr, nullptr, nullptr, sum_few<Short, 1, 3>, sum_few<Short, 1, 4>, sum_few<Short, 1, 5>,
       sum_few<Short, 1, 6>, sum_few<Short, 1, 7>},
      {nullptr, nullptr, nullptr, nullptr, nullptr, sum_few<Short, 2, 5>, sum_few<Short, 2, 6>, sum_few<Short, 2, 7>},
      {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, sum_few<Short, 3, 7>}};
  if (k > kMaxStreamed) return nullptr;
  if (n < 8) return few[k - 1][n];
  return n >= (k <= 4 ? 8 : 16) ? any[k - 1] : nullptr;
}
