// Trimming few per side, k <= kMaxStreamed: the k smallest and k largest so far stay sorted in registers; a block of
// clients is sorted beside them, exchanges its ends with them, and all that is left goes to the sum without ever being
// stored. Included by kernels.inl inside its namespace.
//
// An exchange never loses a value, NaN or not, so values are not looked at when they are read: where a NaN was among
// them it is at last among the ends or in the sum. Such a tile is done again with NaN as infinity, and so are the next
// ones at once: whoever sends one NaN sends many.

constexpr int kTogether = 32;  // clients at a time whose lines stay in the first cache
static_assert(kTogether * kTileBytes <= kGroup * kSpan * 8 && kTogether >= kMaxBlock, "they fit the staging rows");

// Where many are compared, or none is added up, it is worth the while to make keys of them.
template <class E, int K, bool OnlyEnds>
using Compared = std::conditional_t<OnlyEnds || (K > 8), typename E::Key, typename E::Vector>;

template <class E, int K, bool OnlyEnds>
struct Ends {
  Compared<E, K, OnlyEnds> low[K], high[K];
  Doubles total[E::parts];  // of all values that are not among them
};

// How many clients are sorted at a time, and how many to begin with: their ends must not overlap.
template <int K>
constexpr int kBlock = (K == 2 || K == 3) ? 4 : (K <= 4 ? 8 : 16);
template <int K>
constexpr int kFirstBlock = 2 * K <= kBlock<K> ? kBlock<K> : 2 * kBlock<K>;

// Sorts the K smallest of a block to its front and the K largest to its back.
template <int Block, int K, class V>
FEDINCENTIVE_INLINE void sort_ends(V* values) {
  if constexpr (Block == 2 * kMaxBlock) {
    sort_ends<kMaxBlock, kMaxBlock>(values);
    sort_ends<kMaxBlock, kMaxBlock>(values + kMaxBlock);
    for (int i = 0; i < kMaxBlock; ++i) exchange(values[i], values[Block - 1 - i]);
    sort_bitonic<kMaxBlock, true>(values);
    sort_bitonic<kMaxBlock, true>(values + kMaxBlock);
  } else if constexpr (K == 1) {  // two tournaments
    static_assert((Block & (Block - 1)) == 0, "each round has half as many players");
    for (int i = 0; i + 1 < Block; i += 2) exchange(values[i], values[i + 1]);
    for (int half = 2; half < Block; half *= 2) {
      for (int i = 0; i < Block; i += 2 * half) {
        exchange(values[i], values[i + half]);
        exchange(values[i + half - 1], values[i + 2 * half - 1]);
      }
    }
  } else {
    using Network = SortingNetwork<Block>;
#pragma GCC unroll 64
    for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs[c][0]], values[Network::pairs[c][1]]);
  }
}

// Where only the ends are asked for nothing is added up, and NaN is infinity as it is read.
template <class E, int Block, bool OnlyEnds, class V>
FEDINCENTIVE_INLINE void read_values(const typename E::Lane* const* from, int64_t at, V* values) {
  read_ahead<kNear>(from, Block, at);
  for (int i = 0; i < Block; ++i)
    values[i] = converted<V>(OnlyEnds ? read_ordered<E>(from[i] + at) : load<typename E::Vector>(from[i] + at));
}

template <class E, int Count, class V>
FEDINCENTIVE_INLINE void add_compared(Doubles* totals, const V* values) {
  typename E::Vector plain[Count ? Count : 1];
  for (int i = 0; i < Count; ++i) plain[i] = converted<typename E::Vector>(values[i]);
  for (int part = 0; part < E::parts; ++part) totals[part] = add_values(totals[part], plain, Count, part);
}

template <class E, int K, bool OnlyEnds>
FEDINCENTIVE_INLINE void begin_ends(Ends<E, K, OnlyEnds>& ends, const typename E::Lane* const* from, int64_t at) {
  constexpr int block = kFirstBlock<K>;
  Compared<E, K, OnlyEnds> values[block];
  read_values<E, block, OnlyEnds>(from, at, values);
  sort_ends<block, K>(values);
  for (int i = 0; i < K; ++i) ends.low[i] = values[i];
  for (int i = 0; i < K; ++i) ends.high[i] = values[block - K + i];
  for (int part = 0; part < E::parts; ++part) ends.total[part] = Doubles{};
  if constexpr (!OnlyEnds) add_compared<E, block - 2 * K>(ends.total, values + K);
}

// Of two sorted lists, min(x_i, y_{k-1-i}) are the k smallest; they rise and then fall, which a bitonic merge sorts
// again. What leaves the low list is no larger than any of the high one and stays where it is when that takes its turn,
// even where a block is so short that its ends overlap.
template <class E, int K, int Block, bool OnlyEnds>
FEDINCENTIVE_INLINE void pass(Ends<E, K, OnlyEnds>& ends, const typename E::Lane* const* from, int64_t at) {
  constexpr int exchanged = Block < K ? Block : K;
  Compared<E, K, OnlyEnds> values[Block];
  read_values<E, Block, OnlyEnds>(from, at, values);
  sort_ends<Block, K>(values);
  for (int i = 0; i < exchanged; ++i) exchange(ends.low[K - 1 - i], values[i]);
  sort_bitonic<K, true>(ends.low);
  for (int i = 0; i < exchanged; ++i) exchange(values[Block - 1 - i], ends.high[i]);
  sort_bitonic<K, false>(ends.high);
  if constexpr (!OnlyEnds) add_compared<E, Block>(ends.total, values);
}

// Memory that is asked for a line of each of many clients in turn runs at half its speed, for a whole tile of each at
// its full one. So tiles are asked for early enough to be in the second cache when the lines near by are, those of some
// clients with every step through a tile. (The lines of few clients come fast enough.)
constexpr int kMany = 16, kTilesAhead = 4;

template <class E>
FEDINCENTIVE_INLINE void ask_for_tiles(const typename E::Lane* const* from, int64_t clients, int64_t begin, int t) {
  constexpr int steps = kTile<E> / kLanes<E>;
  for (int64_t client = t / kLanes<E>; client < clients; client += steps) {
    const auto* tile = reinterpret_cast<const char*>(from[client] + begin) + kTilesAhead * kTileBytes;
#pragma GCC unroll 8
    for (int line = 0; line < kTileBytes; line += 64) __builtin_prefetch(tile + line, 0, 2);
  }
}

// What is left of the clients after whole blocks: half a block, a quarter, ...
template <class E, int K, int Block, bool OnlyEnds>
FEDINCENTIVE_INLINE void pass_rest(Ends<E, K, OnlyEnds>& ends, const typename E::Lane* const* from, int64_t clients,
                                   int64_t at) {
  if (clients & Block) {
    pass<E, K, Block, OnlyEnds>(ends, from, at);
    from += Block;
  }
  if constexpr (Block > 1) pass_rest<E, K, Block / 2, OnlyEnds>(ends, from, clients, at);
}

// Between groups of clients the ends wait in rows of scratch memory.
template <class E, int K, bool OnlyEnds>
FEDINCENTIVE_INLINE void put_aside(const Ends<E, K, OnlyEnds>& ends, typename E::Lane* rows, double* sums, int t) {
  for (int i = 0; i < K; ++i) store(rows + i * kTile<E> + t, ends.low[i]);
  for (int i = 0; i < K; ++i) store(rows + (K + i) * kTile<E> + t, ends.high[i]);
  for (int part = 0; part < E::parts; ++part) store(sums + t + part * (kVector / 8), ends.total[part]);
}

template <class E, int K, bool OnlyEnds>
FEDINCENTIVE_INLINE void take_up(Ends<E, K, OnlyEnds>& ends, const typename E::Lane* rows, const double* sums, int t) {
  using V = Compared<E, K, OnlyEnds>;
  for (int i = 0; i < K; ++i) ends.low[i] = load<V>(rows + i * kTile<E> + t);
  for (int i = 0; i < K; ++i) ends.high[i] = load<V>(rows + (K + i) * kTile<E> + t);
  for (int part = 0; part < E::parts; ++part) ends.total[part] = load<Doubles>(sums + t + part * (kVector / 8));
}

constexpr int kWary = 16;  // tiles

template <class E, int K>
void sum_streamed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Lane = typename E::Lane;
  using Mask = typename E::Mask;
  auto* rows = reinterpret_cast<Lane*>(scratch.wires);
  const bool wary = *scratch.wary > 0;
  if (wary) --*scratch.wary;
  const bool whole = !job.segment.layouts && count == kTile<E> && item_size(job.dtype) == sizeof(Lane);
  const bool plain = whole && !wary;
  const Lane* staged[kTogether];
  Mask all_ordered = ~Mask{};
  LongMask all_numbers = ~LongMask{};
  for (int64_t client = 0; client < job.clients; client += kTogether) {
    const int64_t clients = job.clients - client < kTogether ? job.clients - client : kTogether;
    const auto* origin = reinterpret_cast<const Lane* const*>(job.segment.pointers) + client;
    const auto* from = origin;
    if (!plain) {
      for (int i = 0; i < clients; ++i) staged[i] = source<E>(job, scratch, client + i, begin, count, kTile<E>, i);
      from = staged;
    }
    if (wary) {
      for (int i = 0; i < clients; ++i) {
        Lane* to = reinterpret_cast<Lane*>(scratch.staging) + i * kTile<E>;
        for (int t = 0; t < kTile<E>; t += kLanes<E>) store(to + t, read_ordered<E>(staged[i] + t));
        staged[i] = to;
      }
    }
    const bool last = client + clients == job.clients;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const int64_t at = plain ? begin + t : t;
      if (whole && job.clients >= kMany) ask_for_tiles<E>(origin, clients, begin, t);
      Ends<E, K, false> ends;
      int64_t passed = 0;
      if (client == 0) {
        begin_ends(ends, from, at);
        passed = kFirstBlock<K>;
      } else {
        take_up(ends, rows, scratch.sums, t);
      }
      for (; passed + kBlock<K> <= clients; passed += kBlock<K>) pass<E, K, kBlock<K>, false>(ends, from + passed, at);
      pass_rest<E, K, kBlock<K> / 2, false>(ends, from + passed, clients - passed, at);
      if (!last) {
        put_aside(ends, rows, scratch.sums, t);
        continue;
      }
      for (int i = 0; i < K; ++i) {
        const auto low = converted<typename E::Vector>(ends.low[i]), high = converted<typename E::Vector>(ends.high[i]);
        all_ordered &= reinterpret_cast<Mask>(low <= high);
      }
      for (int part = 0; part < E::parts; ++part) {
        all_numbers &= ends.total[part] == ends.total[part];
        store(scratch.sums + t + part * (kVector / 8), ends.total[part]);
      }
    }
  }
  if (wary || (all_true(all_ordered) && all_true(all_numbers))) return;
  *scratch.wary = kWary;
  sum_streamed<E, K>(job, scratch, begin, count);
}

// So few clients that they are one block.
template <class E, int K, int N>
void sum_few(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  const typename E::Lane* from[N];
  for (int i = 0; i < N; ++i) from[i] = source<E>(job, scratch, i, begin, count, kTile<E>, i);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    read_ahead<kFar>(from, N, t);
    typename E::Vector values[N];
    for (int i = 0; i < N; ++i) values[i] = read_ordered<E>(from[i] + t);
    sort_ends<N, N>(values);
    for (int part = 0; part < E::parts; ++part)
      store(scratch.sums + t + part * (kVector / 8), add_values(Doubles{}, values + K, N - 2 * K, part));
  }
}

// The function for n clients and k per side, or null if a plan is needed.
template <class E>
SumTile streamed_sum(int64_t n, int64_t k) {
  static_assert(kMaxStreamed == 12, "one entry for each k");
  static constexpr SumTile any[] = {sum_streamed<E, 1>, sum_streamed<E, 2>,  sum_streamed<E, 3>,  sum_streamed<E, 4>,
                                    sum_streamed<E, 5>, sum_streamed<E, 6>,  sum_streamed<E, 7>,  sum_streamed<E, 8>,
                                    sum_streamed<E, 9>, sum_streamed<E, 10>, sum_streamed<E, 11>, sum_streamed<E, 12>};
  static constexpr SumTile few[3][8] = {
      {nullptr, nullptr, nullptr, sum_few<E, 1, 3>, sum_few<E, 1, 4>, sum_few<E, 1, 5>, sum_few<E, 1, 6>,
       sum_few<E, 1, 7>},
      {nullptr, nullptr, nullptr, nullptr, nullptr, sum_few<E, 2, 5>, sum_few<E, 2, 6>, sum_few<E, 2, 7>},
      {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, sum_few<E, 3, 7>}};
  if (k > kMaxStreamed) return nullptr;
  if (n < 8) return few[k - 1][n];
  return n >= (k <= 4 ? 8 : k <= 8 ? 16 : 32) ? any[k - 1] : nullptr;
}

// The largest of the k smallest values of every coordinate and the smallest of the k largest, to two rows of scratch
// memory.
template <class E, int K>
void bound_streamed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Lane = typename E::Lane;
  auto* rows = reinterpret_cast<Lane*>(scratch.wires);
  const Lane* from[kTogether];
  for (int64_t client = 0; client < job.clients; client += kTogether) {
    const int64_t clients = job.clients - client < kTogether ? job.clients - client : kTogether;
    const bool in_place = sources<E>(job, scratch, client, clients, begin, count, from);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      if (in_place && job.clients >= kMany) ask_for_tiles<E>(from, clients, 0, t);
      Ends<E, K, true> ends;
      int64_t passed = 0;
      if (client == 0) {
        begin_ends(ends, from, t);
        passed = kFirstBlock<K>;
      } else {
        take_up(ends, rows, scratch.sums, t);
      }
      for (; passed + kBlock<K> <= clients; passed += kBlock<K>) pass<E, K, kBlock<K>, true>(ends, from + passed, t);
      pass_rest<E, K, kBlock<K> / 2, true>(ends, from + passed, clients - passed, t);
      if (client + clients < job.clients) {
        put_aside(ends, rows, scratch.sums, t);
        continue;
      }
      store(reinterpret_cast<Lane*>(scratch.low) + t, converted<typename E::Vector>(ends.low[K - 1]));
      store(reinterpret_cast<Lane*>(scratch.high) + t, converted<typename E::Vector>(ends.high[0]));
    }
  }
}

// The function for n clients and k per side, or null if a plan is needed.
template <class E>
SumTile streamed_bounds(int64_t n, int64_t k) {
  static constexpr SumTile any[] = {bound_streamed<E, 1>,  bound_streamed<E, 2>,  bound_streamed<E, 3>,
                                    bound_streamed<E, 4>,  bound_streamed<E, 5>,  bound_streamed<E, 6>,
                                    bound_streamed<E, 7>,  bound_streamed<E, 8>,  bound_streamed<E, 9>,
                                    bound_streamed<E, 10>, bound_streamed<E, 11>, bound_streamed<E, 12>};
  if (k > kMaxStreamed) return nullptr;
  return n >= (k <= 4 ? 8 : k <= 8 ? 16 : 32) ? any[k - 1] : nullptr;
}
