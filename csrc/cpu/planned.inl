// Runs a plan (see plan.hpp) on one tile: clients are loaded and sorted in blocks, wires compared, lists displaced.
// Wires hold keys.
// Included by kernels.inl inside its namespace.

// The values of N clients, sorted coordinate by coordinate into N wires.
template <class E, int N>
void load_sorted(const typename E::Lane* const* from, typename E::Lane* to) {
  using Key = typename E::Key;
  using Network = SortingNetwork<N>;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    read_ahead<kNear>(from, N, t);
    Key values[N];
    for (int i = 0; i < N; ++i) values[i] = converted<Key>(read_ordered<E>(from[i] + t));
#pragma GCC unroll 64
    for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs[c][0]], values[Network::pairs[c][1]]);
    for (int i = 0; i < N; ++i) store(to + i * kTile<E> + t, values[i]);
  }
}

// A load step: its clients are read and sorted into its wires.
template <class E>
void load_block(const TileJob& job, const Scratch& scratch, const Step& step, int64_t begin, int64_t count) {
  using Loader = void (*)(const typename E::Lane* const*, typename E::Lane*);
  static constexpr Loader loaders[] = {load_sorted<E, 1>,  load_sorted<E, 2>,  load_sorted<E, 3>,  load_sorted<E, 4>,
                                       load_sorted<E, 5>,  load_sorted<E, 6>,  load_sorted<E, 7>,  load_sorted<E, 8>,
                                       load_sorted<E, 9>,  load_sorted<E, 10>, load_sorted<E, 11>, load_sorted<E, 12>,
                                       load_sorted<E, 13>, load_sorted<E, 14>, load_sorted<E, 15>, load_sorted<E, 16>};
  const typename E::Lane* from[kMaxBlock];
  for (uint32_t i = 0; i < step.count; ++i)
    from[i] = source<E>(job, scratch, step.begin + i, begin, count, kTile<E>, static_cast<int>(i));
  loaders[step.count - 1](from, reinterpret_cast<typename E::Lane*>(scratch.wires) + step.wire * kTile<E>);
}

// A compare step: one exchange of two wires after the other.
template <class E>
void compare_pairs(typename E::Lane* wires, const Pair* pairs, uint32_t count) {
  using Key = typename E::Key;
  for (uint32_t p = 0; p < count; ++p) {
    typename E::Lane* a = wires + pairs[p].low * kTile<E>;
    typename E::Lane* b = wires + pairs[p].high * kTile<E>;
#pragma GCC unroll 16
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      Key x = load<Key>(a + t), y = load<Key>(b + t);
      exchange(x, y);
      store(a + t, x);
      store(b + t, y);
    }
  }
}

// See for_bitonic of sorting.hpp.
template <int N, bool PadFront, class V>
FEDINCENTIVE_INLINE void sort_bitonic(V* values) {
  using Network = BitonicNetwork<N, PadFront>;
#pragma GCC unroll 64
  for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs.at[c][0]], values[Network::pairs.at[c][1]]);
}

// Two sorted lists of K wires: the first keeps the smallest (or largest) K of both, in order again; the others are
// handed on as kept.
template <class E, int K, bool Highest, class Keep>
void displace(typename E::Lane* wires, const uint32_t* lists, const Keep& keep) {
  using Key = typename E::Key;
  typename E::Lane* at[2 * K];
  for (int i = 0; i < 2 * K; ++i) at[i] = wires + lists[i] * kTile<E>;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    Key list[K], leaf[K];
    for (int i = 0; i < K; ++i) list[i] = load<Key>(at[i] + t);
    for (int i = 0; i < K; ++i) leaf[i] = load<Key>(at[K + i] + t);
    for (int i = 0; i < K; ++i) {
      if constexpr (Highest)
        exchange(leaf[K - 1 - i], list[i]);
      else
        exchange(list[i], leaf[K - 1 - i]);
    }
    sort_bitonic<K, !Highest>(list);
    for (int i = 0; i < K; ++i) store(at[i] + t, list[i]);
    typename E::Vector values[K];
    for (int i = 0; i < K; ++i) values[i] = converted<typename E::Vector>(leaf[i]);
    keep.template take<E>(t, values, K);
  }
}

// A displace step of lists of any length that a plan may ask for.
template <class E, class Keep>
void displace_any(typename E::Lane* wires, const uint32_t* lists, uint32_t k, bool highest, const Keep& keep) {
  using Displacer = void (*)(typename E::Lane*, const uint32_t*, const Keep&);
  static_assert(kMinDisplaced == 5 && kMaxDisplaced == 12, "one entry for each size");
  static constexpr Displacer displacers[][2] = {{displace<E, 5, false, Keep>, displace<E, 5, true, Keep>},
                                                {displace<E, 6, false, Keep>, displace<E, 6, true, Keep>},
                                                {displace<E, 7, false, Keep>, displace<E, 7, true, Keep>},
                                                {displace<E, 8, false, Keep>, displace<E, 8, true, Keep>},
                                                {displace<E, 9, false, Keep>, displace<E, 9, true, Keep>},
                                                {displace<E, 10, false, Keep>, displace<E, 10, true, Keep>},
                                                {displace<E, 11, false, Keep>, displace<E, 11, true, Keep>},
                                                {displace<E, 12, false, Keep>, displace<E, 12, true, Keep>}};
  displacers[k - kMinDisplaced][highest](wires, lists, keep);
}

// All steps of the job's plan, for one tile.
template <class E, class Keep>
inline void run_plan(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, const Keep& keep) {
  auto* wires = reinterpret_cast<typename E::Lane*>(scratch.wires);
  for (int64_t s = 0; s < job.plan.step_count; ++s) {
    const Step& step = job.plan.steps[s];
    const uint32_t* wires_of = job.plan.wires_of + step.begin;
    switch (step.kind) {
      case StepKind::load:
        load_block<E>(job, scratch, step, begin, count);
        break;
      case StepKind::compare:
        compare_pairs<E>(wires, job.plan.pairs + step.begin, step.count);
        break;
      case StepKind::displace:
        displace_any<E>(wires, wires_of, step.count, step.wire != 0, keep);
        break;
      case StepKind::keep:
        keep.template take_wires<E>(wires, wires_of, step.count);
        break;
    }
  }
}

template <class E>
void sum_planned(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  fill(scratch.sums, 0, kTile<E>);
  run_plan<E>(job, scratch, begin, count, AddKept{scratch.sums});
}
