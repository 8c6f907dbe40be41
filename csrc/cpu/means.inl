// The sums of a mean, with weights or without, where nothing is trimmed. Included by kernels.inl inside its namespace.

// How values are read from memory: two vectors of double at a time.
template <class Lane>
struct AsTheyAre {
  using Item = Lane;
  static FEDINCENTIVE_INLINE Doubles read(const Item* from, int vector) {
    return load_wide(from + vector * (kVector / 8));
  }
};
struct FromFloat16 {
  using Item = uint16_t;
  static FEDINCENTIVE_INLINE Doubles read(const Item* from, int vector) {
    return widen_part(widen_float16s(from + vector / 2 * (kVector / 4)), vector % 2);
  }
};
struct FromBfloat16 {
  using Item = uint16_t;
  static FEDINCENTIVE_INLINE Doubles read(const Item* from, int vector) {
    return widen_part(widen_bfloat16s(from + vector / 2 * (kVector / 4)), vector % 2);
  }
};

// A group of clients at a time, so that the sums stay in registers and each client is read in long runs. `full` is a
// whole number of steps.
template <class Reading, bool Weighted, int Group>
void sum_group(const typename Reading::Item* const* from, const double* weights, double* sums, bool first,
               int64_t full) {
  constexpr int wide = kVector / 8, unroll = 4, line = 64 / sizeof(typename Reading::Item);
  for (int64_t t = 0; t < full; t += unroll * wide) {
    for (int64_t ahead = t; ahead < t + unroll * wide; ahead += line) read_ahead<kFar>(from, Group, ahead);
    Doubles totals[unroll];
    for (int v = 0; v < unroll; ++v) totals[v] = first ? Doubles{} : load<Doubles>(sums + t + v * wide);
    for (int c = 0; c < Group; ++c) {
#pragma GCC unroll 4
      for (int v = 0; v < unroll; ++v) {
        Doubles value = Reading::read(from[c] + t, v);
        if constexpr (Weighted) value = value * weights[c];
        totals[v] += value;
      }
    }
    for (int v = 0; v < unroll; ++v) store(sums + t + v * wide, totals[v]);
  }
}

// As many lanes as are worked on for `count` values: a small array does not cost as much as a whole span.
inline int64_t padded(int64_t count) { return (count + 63) / 64 * 64; }

template <class E, bool Weighted, int Group>
void sum_from(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin, int64_t count) {
  const int64_t full = padded(count);
  const typename E::Lane* from[Group];
  for (; client + Group <= job.clients; client += Group) {
    for (int c = 0; c < Group; ++c) from[c] = source<E>(job, scratch, client + c, begin, count, full, c);
    sum_group<AsTheyAre<typename E::Lane>, Weighted, Group>(from, job.weights + client, scratch.sums, client == 0,
                                                            full);
  }
  if constexpr (Group > 1) sum_from<E, Weighted, Group / 2>(job, scratch, client, begin, count);
}

// Halves that lie one after the other are widened in registers.
template <class Reading, bool Weighted, int Group>
void sum_halves(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin, int64_t count) {
  const uint16_t* from[Group];
  for (; client + Group <= job.clients; client += Group) {
    for (int c = 0; c < Group; ++c) from[c] = static_cast<const uint16_t*>(job.segment.pointers[client + c]) + begin;
    sum_group<Reading, Weighted, Group>(from, job.weights + client, scratch.sums, client == 0, count);
  }
  if constexpr (Group > 1) sum_halves<Reading, Weighted, Group / 2>(job, scratch, client, begin, count);
}

template <class E, bool Weighted>
void sum_all(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  if (job.divisor == 0) fill(scratch.weights, 0, kSpan);  // all weights are 0: there is nothing to divide by
  const bool halves = item_size(job.dtype) == 2 && !job.segment.layouts && count == padded(count);
  if (halves && job.dtype == Dtype::float16)
    sum_halves<FromFloat16, Weighted, kGroup>(job, scratch, 0, begin, count);
  else if (halves)
    sum_halves<FromBfloat16, Weighted, kGroup>(job, scratch, 0, begin, count);
  else
    sum_from<E, Weighted, kGroup>(job, scratch, 0, begin, count);
}
