// The sums of a mean, with weights or without, where nothing is trimmed. Included by kernels.inl inside its namespace.

// A group of clients at a time, so that the sums stay in registers and each client is read in long runs.
template <class E, bool Weighted, int Group>
void sum_group(const typename E::Lane* const* from, const double* weights, double* sums, bool first) {
  constexpr int wide = kVector / 8, unroll = 4, line = 64 / sizeof(typename E::Lane);
  for (int t = 0; t < kSpan; t += unroll * wide) {
    for (int ahead = t; ahead < t + unroll * wide; ahead += line) read_ahead<kFar>(from, Group, ahead);
    Doubles totals[unroll];
    for (int v = 0; v < unroll; ++v) totals[v] = first ? Doubles{} : load<Doubles>(sums + t + v * wide);
    for (int c = 0; c < Group; ++c) {
      for (int v = 0; v < unroll; ++v) {
        Doubles value = load_wide(from[c] + t + v * wide);
        if constexpr (Weighted) value = value * weights[c];
        totals[v] += value;
      }
    }
    for (int v = 0; v < unroll; ++v) store(sums + t + v * wide, totals[v]);
  }
}

template <class E, bool Weighted, int Group>
void sum_from(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin, int64_t count) {
  const typename E::Lane* from[Group];
  for (; client + Group <= job.clients; client += Group) {
    for (int c = 0; c < Group; ++c) from[c] = source<E>(job, scratch, client + c, begin, count, kSpan, c);
    sum_group<E, Weighted, Group>(from, job.weights + client, scratch.sums, client == 0);
  }
  if constexpr (Group > 1) sum_from<E, Weighted, Group / 2>(job, scratch, client, begin, count);
}

template <class E, bool Weighted>
void sum_all(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  if (job.divisor == 0) fill(scratch.weights, 0, kSpan);  // all weights are 0: there is nothing to divide by
  sum_from<E, Weighted, kGroup>(job, scratch, 0, begin, count);
}
