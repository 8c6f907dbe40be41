// The sums of a trimmed mean with weights: first the two cuts are found, the largest value trimmed on the low side and
// the smallest on the high one; then the clients are read again, while they are in the cache. Included by kernels.inl
// inside its namespace.

// The cuts of a tile, to scratch.low and scratch.high.
template <class E>
void find_cuts(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Lane = typename E::Lane;
  if (const SumTile streamed = streamed_bounds<E>(job.clients, job.trim)) return streamed(job, scratch, begin, count);
  run_plan<E>(job, scratch, begin, count, Forget{});
  const auto* wires = reinterpret_cast<const Lane*>(scratch.wires);
  const auto row = [&](uint32_t wire, int t) { return load<typename E::Key>(wires + wire * kTile<E> + t); };
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    auto low = row(job.plan.lowest[0], t), high = row(job.plan.highest[0], t);
    for (int64_t i = 1; i < job.trim; ++i) {
      low = larger(row(job.plan.lowest[i], t), low);
      high = smaller(row(job.plan.highest[i], t), high);
    }
    store(reinterpret_cast<Lane*>(scratch.low) + t, converted<Vector>(low));
    store(reinterpret_cast<Lane*>(scratch.high) + t, converted<Vector>(high));
  }
}

// sums += weight * shrink * value and weights += weight, where a lane is kept; client after client, in their order
template <class E>
struct Kept {
  Doubles sums[E::parts], weights[E::parts];

  FEDINCENTIVE_INLINE void take_up(const Scratch& scratch, int t, bool first) {
    for (int part = 0; part < E::parts; ++part) {
      const int at = t + part * (kVector / 8);
      sums[part] = first ? Doubles{} : load<Doubles>(scratch.sums + at);
      weights[part] = first ? Doubles{} : load<Doubles>(scratch.weights + at);
    }
  }
  FEDINCENTIVE_INLINE void add(typename E::Vector value, typename E::Where keep, double weight, double scaled) {
    const auto kept = only(keep, value);
    for (int part = 0; part < E::parts; ++part) {
      sums[part] += widen_part(kept, part) * scaled;
      weights[part] = add_where(keep, part, weights[part], weight - Doubles{});
    }
  }
  // The same, not scaled, where the value lies in memory.
  FEDINCENTIVE_INLINE void add(const typename E::Lane* value, typename E::Where keep, double weight) {
    const Doubles wide = weight - Doubles{};
    for (int part = 0; part < E::parts; ++part) {
      sums[part] += load_where<E>(keep, part, value) * wide;
      weights[part] = add_where(keep, part, weights[part], wide);
    }
  }
  FEDINCENTIVE_INLINE void put_aside(const Scratch& scratch, int t) const {
    for (int part = 0; part < E::parts; ++part) {
      store(scratch.sums + t + part * (kVector / 8), sums[part]);
      store(scratch.weights + t + part * (kVector / 8), weights[part]);
    }
  }
};

// Where no value that is kept equals a cut, the values strictly between the cuts are those that are kept. That it was
// so is seen from their number. Returns false where it was not.
template <class E>
bool sum_between_cuts(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  using Lane = typename E::Lane;
  using Count = typename E::Count;
  const Lane *low = reinterpret_cast<const Lane*>(scratch.low), *high = reinterpret_cast<const Lane*>(scratch.high);
  Count* counts = reinterpret_cast<Count*>(scratch.counts);
  const Mask expected = Mask{} + static_cast<Count>(job.clients - 2 * job.trim);
  Mask as_expected = ~Mask{};
  const Lane* from[kTogether];
  for (int64_t client = 0; client < job.clients; client += kTogether) {
    const int clients = static_cast<int>(job.clients - client < kTogether ? job.clients - client : kTogether);
    sources<E>(job, scratch, client, clients, begin, count, from);
    const double* weights = job.weights + client;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const Vector bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      Kept<E> kept;
      kept.take_up(scratch, t, client == 0);
      Mask number = client == 0 ? Mask{} : load<Mask>(counts + t);
      for (int i = 0; i < clients; ++i) {  // a NaN is not between them, as the comparison is false
        const Vector value = load<Vector>(from[i] + t);
        const auto keep = both(below(bottom, value), below(value, top));
        number = count_where(number, keep);
        if (job.shrink == 1)
          kept.add(from[i] + t, keep, weights[i]);
        else
          kept.add(value, keep, weights[i], weights[i] * job.shrink);
      }
      kept.put_aside(scratch, t);
      if (client + clients < job.clients)
        store(counts + t, number);
      else
        as_expected &= reinterpret_cast<Mask>(number == expected);
    }
  }
  return all_true(as_expected);
}

// Of the values that equal a cut the clients that a stable sort would keep: on the low side the first of them are
// trimmed, on the high side the last.
template <class E>
void sum_among_equals(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  using Lane = typename E::Lane;
  using Count = typename E::Count;
  const Lane *low = reinterpret_cast<const Lane*>(scratch.low), *high = reinterpret_cast<const Lane*>(scratch.high);
  Count* counts = reinterpret_cast<Count*>(scratch.counts);
  Count *below = counts, *above = below + kTile<E>, *at_high = above + kTile<E>, *seen_low = at_high + kTile<E>,
        *seen_high = seen_low + kTile<E>;
  std::memset(counts, 0, sizeof(Count) * 5 * kTile<E>);
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {  // a true lane is -1
      const Vector value = read_ordered<E>(from + t), bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      store(below + t, load<Mask>(below + t) - reinterpret_cast<Mask>(value < bottom));
      store(above + t, load<Mask>(above + t) - reinterpret_cast<Mask>(value > top));
      store(at_high + t, load<Mask>(at_high + t) - reinterpret_cast<Mask>(value == top));
    }
  }
  const Mask trim = Mask{} + static_cast<Count>(job.trim);
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    const double weight = job.weights[client], scaled = weight * job.shrink;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const Vector value = read_ordered<E>(from + t), bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      const Mask is_low = reinterpret_cast<Mask>(value == bottom), is_high = reinterpret_cast<Mask>(value == top);
      const Mask before_low = load<Mask>(seen_low + t), before_high = load<Mask>(seen_high + t);
      const Mask trimmed_low = trim - load<Mask>(below + t);
      const Mask kept_high = load<Mask>(at_high + t) - (trim - load<Mask>(above + t));
      const Mask keep_low =
          reinterpret_cast<Mask>(value > bottom) | (is_low & reinterpret_cast<Mask>(before_low >= trimmed_low));
      const Mask keep_high =
          reinterpret_cast<Mask>(value < top) | (is_high & reinterpret_cast<Mask>(before_high < kept_high));
      store(seen_low + t, before_low - is_low);
      store(seen_high + t, before_high - is_high);
      Kept<E> kept;
      kept.take_up(scratch, t, client == 0);
      kept.add(value, where_of(keep_low & keep_high), weight, scaled);
      kept.put_aside(scratch, t);
    }
  }
}

// The same where many are trimmed: the ends of what is kept are searched for.
template <class E>
void sum_weighted_cut(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  line_up<E>(job, scratch, begin, count);
  const Mask expected = Mask{} + static_cast<typename E::Count>(job.clients - 2 * job.trim);
  Mask as_expected = ~Mask{};
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    const auto* row = reinterpret_cast<const typename E::Lane*>(scratch.wires) + t * job.clients;
    const Range<E> ends = kept_by_count<E>(job, row);
    store(reinterpret_cast<typename E::Lane*>(scratch.low) + t, ends.least);
    store(reinterpret_cast<typename E::Lane*>(scratch.high) + t, ends.most);
    Kept<E> kept;
    kept.take_up(scratch, t, true);
    Mask number{};
    for (int64_t client = 0; client < job.clients; ++client) {
      const Vector value = load<Vector>(row + client * kLanes<E>);
      const auto keep = both(not_above(ends.least, value), not_above(value, ends.most));
      number = count_where(number, keep);
      kept.add(value, keep, job.weights[client], job.weights[client] * job.shrink);
    }
    kept.put_aside(scratch, t);
    as_expected &= reinterpret_cast<Mask>(number == expected);
  }
  if (!all_true(as_expected)) sum_among_equals<E>(job, scratch, begin, count);
}

template <class E>
void sum_weighted_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  if (cut_by_search(job.clients, job.trim)) return sum_weighted_cut<E>(job, scratch, begin, count);
  find_cuts<E>(job, scratch, begin, count);
  if (!sum_between_cuts<E>(job, scratch, begin, count)) sum_among_equals<E>(job, scratch, begin, count);
}
