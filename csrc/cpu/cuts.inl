// Two values of every coordinate between which all others are kept, found without sorting: the values are divided again
// and again, by a guess between the least and the greatest that the cut can still be, and the number or the weight on
// one side says which of them it still can be. Included by kernels.inl inside its namespace.
//
// Every division takes at least one value away, and every third at least half of all numbers that there are between the
// two: whatever is sent, it ends soon.

// The tile's values in rows of scratch memory, one vector of all clients after the other; NaN as infinity.
template <class E>
void line_up(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  constexpr int tiles_ahead = 2;
  auto* rows = reinterpret_cast<typename E::Lane*>(scratch.wires);
  const bool whole = !job.segment.layouts && count == kTile<E>;
  const int64_t item = item_size(job.dtype);
  for (int64_t client = 0; client < job.clients; ++client) {
    if (whole) {  // with the last tile's, what lies behind the array is asked for: it is not read
      const auto* ahead =
          static_cast<const char*>(job.segment.pointers[client]) + (begin + tiles_ahead * kTile<E>)*item;
      for (int64_t line = 0; line < kTile<E> * item; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    }
    const auto* from = source<E>(job, scratch, client, begin, count, kTile<E>, 0);
    for (int t = 0; t < kTile<E>; t += kLanes<E>)
      store(rows + t * job.clients + client * kLanes<E>, read_ordered<E>(from + t));
  }
}

// Halfway between a and b in the order of all numbers that there are: as integers.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector halfway(typename E::Vector a, typename E::Vector b) {
  using Mask = typename E::Mask;
  constexpr int sign = sizeof(typename E::Lane) * 8 - 1;
  const Mask most = Mask{} + static_cast<typename E::Count>(~(uint64_t{1} << 63) >> (63 - sign));
  Mask x = reinterpret_cast<Mask>(a), y = reinterpret_cast<Mask>(b);
  x ^= (x >> sign) & most;
  y ^= (y >> sign) & most;
  Mask middle = (x & y) + ((x ^ y) >> 1);
  middle ^= (middle >> sign) & most;
  return reinterpret_cast<typename E::Vector>(middle);
}

template <class E>
FEDINCENTIVE_INLINE typename E::Vector choose(typename E::Mask where, typename E::Vector a, typename E::Vector b) {
  using Mask = typename E::Mask;
  return reinterpret_cast<typename E::Vector>((where & reinterpret_cast<Mask>(a)) |
                                              (~where & reinterpret_cast<Mask>(b)));
}

// Part of the way from a to b, from a on and below b; where a == b, a.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector on_the_way(typename E::Vector a, typename E::Vector b, typename E::Vector part,
                                                  int pass) {
  using Mask = typename E::Mask;
  const typename E::Vector middle = halfway<E>(a, b);
  const auto inside = [&](typename E::Vector value) {
    return reinterpret_cast<Mask>(value >= a) & reinterpret_cast<Mask>(value < b);
  };
  typename E::Vector found = choose<E>(inside(middle), middle, a);
  if (pass % 3 == 2) return found;
  const typename E::Vector guess = a * (1 - part) + b * part;
  return choose<E>(inside(guess), guess, found);
}

// How many values are not above one, and whether they are more than `rank`.
template <class E>
struct ByCount {
  int64_t rank, clients;
  typename E::Mask number;
  void begin() { number = typename E::Mask{}; }
  FEDINCENTIVE_INLINE void add(typename E::Where not_above, double) { number = count_where(number, not_above); }
  FEDINCENTIVE_INLINE typename E::Mask reached() const {
    return reinterpret_cast<typename E::Mask>(number > typename E::Mask{} + static_cast<typename E::Count>(rank));
  }
  typename E::Lane all() const { return static_cast<typename E::Lane>(clients); }
  typename E::Lane wanted() const { return static_cast<typename E::Lane>(rank) + static_cast<typename E::Lane>(0.5); }
  FEDINCENTIVE_INLINE typename E::Vector not_above() const {
    return __builtin_convertvector(number, typename E::Vector);
  }
};

constexpr double kNothing = 1e-12;  // a weight that rounding leaves of a client that is cut off whole

// What weight is not above one and whether it is more than `share`; or what weight is, and whether it is not.
template <class E, bool Above>
struct ByWeight {
  double share;
  Doubles weight[E::parts];
  void begin() {
    for (int part = 0; part < E::parts; ++part) weight[part] = Doubles{};
  }
  FEDINCENTIVE_INLINE void add(typename E::Where not_above, double amount) {
    const auto where = Above ? elsewhere(not_above) : not_above;
    for (int part = 0; part < E::parts; ++part) weight[part] = add_where(where, part, weight[part], Doubles{} + amount);
  }
  FEDINCENTIVE_INLINE typename E::Mask reached() const {
    typedef typename E::Count Part __attribute__((vector_size(kVector / E::parts)));
    Part parts[E::parts];
    for (int part = 0; part < E::parts; ++part) {
      const auto more = reinterpret_cast<LongMask>(weight[part] > Doubles{} + (share + kNothing));
      parts[part] = __builtin_convertvector(Above ? ~more : more, Part);
    }
    typename E::Mask all;
    std::memcpy(&all, parts, sizeof all);
    return all;
  }
  typename E::Lane all() const { return 1; }
  typename E::Lane wanted() const { return static_cast<typename E::Lane>(Above ? 1 - share : share); }
  FEDINCENTIVE_INLINE typename E::Vector not_above() const {
    typename E::Vector found;
    if constexpr (E::parts == 1) {
      found = weight[0];
    } else {
      const HalfFloats parts[2] = {to_floats(weight[0]), to_floats(weight[1])};
      std::memcpy(&found, parts, sizeof found);
    }
    return Above ? 1 - found : found;
  }
};

// Where a cut can still be: from `least` to `most`, which are both among the values of their row; and how many or what
// weight is below the one and not above the other.
template <class E, class By>
struct Search {
  using Vector = typename E::Vector;
  const typename E::Lane* row;
  By by;
  Vector least, most, under, upto, pivot, before, after;

  Search(const typename E::Lane* row, const By& by, Vector least, Vector most)
      : row(row), by(by), least(least), most(most), under{}, upto(Vector{} + by.all()) {}
  FEDINCENTIVE_INLINE bool going_on() const { return anywhere(below(least, most)); }
  // The first guess is for values that are denser in their middle, as most are; the next go by what was counted.
  FEDINCENTIVE_INLINE void divide(int pass) {
    using Lane = typename E::Lane;
    Vector part = (by.wanted() - under) / (upto - under);
    if (pass == 0) part = static_cast<Lane>(0.5) * part + static_cast<Lane>(0.25);
    pivot = on_the_way<E>(least, most, part, pass);
    before = least;
    after = most;
    by.begin();
  }
  FEDINCENTIVE_INLINE void look(int64_t client, double weight) {
    const Vector value = load<Vector>(row + client * kLanes<E>);
    const auto where = not_above(value, pivot);
    before = larger_where(where, before, value);
    after = smaller_where(elsewhere(where), after, value);
    by.add(where, weight);
  }
  FEDINCENTIVE_INLINE void decide() {
    const typename E::Mask reached = by.reached();
    const Vector number = by.not_above();
    least = choose<E>(reached, least, after);
    under = choose<E>(reached, under, number);
    most = choose<E>(reached, before, most);
    upto = choose<E>(reached, number, upto);
  }
};

// Two searches at a time, as one alone would wait for its own results.
template <class E, class One, class Two>
FEDINCENTIVE_INLINE void finish_both(const TileJob& job, Search<E, One>& one, Search<E, Two>& two) {
  const double* weights = job.share > 0 ? job.weights : nullptr;
  for (int pass = 0; one.going_on() || two.going_on(); ++pass) {
    one.divide(pass);
    two.divide(pass);
    for (int64_t client = 0; client < job.clients; ++client) {
      const double weight = weights ? weights[client] : 0;
      one.look(client, weight);
      two.look(client, weight);
    }
    one.decide();
    two.decide();
  }
}

template <class E>
struct Range {
  typename E::Vector least, most;
};

template <class E>
FEDINCENTIVE_INLINE Range<E> range_of(const typename E::Lane* row, int64_t clients) {
  using Vector = typename E::Vector;
  Range<E> range{load<Vector>(row), load<Vector>(row)};
  for (int64_t client = 1; client < clients; ++client) {
    const Vector value = load<Vector>(row + client * kLanes<E>);
    range.least = smaller(value, range.least);
    range.most = larger(value, range.most);
  }
  return range;
}

// The least and the greatest of the kept values of a row: of one search each.
template <class E, class One, class Two>
FEDINCENTIVE_INLINE Range<E> kept_ends(const TileJob& job, const typename E::Lane* row, One one, Two two) {
  const Range<E> all = range_of<E>(row, job.clients);
  Search<E, One> low(row, one, all.least, all.most);
  Search<E, Two> high(row, two, all.least, all.most);
  finish_both<E>(job, low, high);
  return {low.least, high.least};
}

// Where one or two values in the middle are kept, the second is the next above the first, or equals it.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector next_kept(const TileJob& job, const typename E::Lane* row,
                                                 typename E::Vector first, typename E::Vector most) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  Mask number{};
  for (int64_t client = 0; client < job.clients; ++client) {
    const Vector value = load<Vector>(row + client * kLanes<E>);
    const auto where = not_above(value, first);
    number = count_where(number, where);
    most = smaller_where(elsewhere(where), most, value);
  }
  const Mask equal = reinterpret_cast<Mask>(number > Mask{} + static_cast<typename E::Count>(job.trim + 1));
  return choose<E>(equal, first, most);
}

// The middle of two rows at a time.
template <class E>
FEDINCENTIVE_INLINE void find_middles(const TileJob& job, const typename E::Lane* row, Range<E>* found) {
  const typename E::Lane* other = row + job.clients * kLanes<E>;
  const Range<E> one = range_of<E>(row, job.clients), two = range_of<E>(other, job.clients);
  const ByCount<E> middle{job.trim, job.clients, {}};
  Search<E, ByCount<E>> first(row, middle, one.least, one.most), second(other, middle, two.least, two.most);
  finish_both<E>(job, first, second);
  found[0] = {first.least, first.least};
  found[1] = {second.least, second.least};
  if (job.clients - 2 * job.trim == 1) return;
  found[0].most = next_kept<E>(job, row, first.least, one.most);
  found[1].most = next_kept<E>(job, other, second.least, two.most);
}

// What is kept strictly between the ends, four values at a time as in kept.inl, or one by one where they are scaled.
template <class E>
FEDINCENTIVE_INLINE typename E::Mask add_between(const TileJob& job, const typename E::Lane* row, const Range<E>& ends,
                                                 Doubles* totals) {
  using Vector = typename E::Vector;
  typename E::Mask number{};
  const auto kept = [&](int64_t client) {
    const Vector value = load<Vector>(row + client * kLanes<E>);
    const auto where = both(below(ends.least, value), below(value, ends.most));
    number = count_where(number, where);
    return only(where, value);
  };
  const int at_once = job.shrink == 1 ? 4 : 1;
  for (int64_t client = 0; client < job.clients; client += at_once) {
    Vector values[4];
    const int some = static_cast<int>(job.clients - client < at_once ? job.clients - client : at_once);
    if (some == 4) {
      for (int i = 0; i < 4; ++i) values[i] = kept(client + i);
      for (int part = 0; part < E::parts; ++part) totals[part] = add_values(totals[part], values, 4, part);
      continue;
    }
    for (int i = 0; i < some; ++i) values[i] = kept(client + i);
    for (int part = 0; part < E::parts; ++part)
      for (int i = 0; i < some; ++i) totals[part] += widen_part(values[i], part) * job.shrink;
  }
  return number;
}

// How many values equal to the lower end are kept: all that there are, less those that are trimmed.
template <class E>
FEDINCENTIVE_INLINE typename E::Mask kept_at_low(const TileJob& job, const typename E::Lane* row, const Range<E>& ends,
                                                 typename E::Mask between) {
  using Mask = typename E::Mask;
  const Mask all = Mask{} + static_cast<typename E::Count>(job.clients - 2 * job.trim);
  const Mask single = reinterpret_cast<Mask>(ends.least == ends.most);
  const Mask usual = ~single & reinterpret_cast<Mask>(between + 2 == all);
  Mask number = (single & all) | (usual & (Mask{} + 1));
  if (all_true(single | usual)) return number;
  Mask not_more = Mask{} - static_cast<typename E::Count>(job.trim);
  for (int64_t client = 0; client < job.clients; ++client)
    not_more = count_where(not_more, not_above(load<typename E::Vector>(row + client * kLanes<E>), ends.least));
  return number | (~(single | usual) & not_more);
}

template <class E>
FEDINCENTIVE_INLINE Doubles to_doubles_part(typename E::Mask number, int part) {
  if constexpr (E::parts == 1) return __builtin_convertvector(number, Doubles);
  return __builtin_convertvector(widen_mask(number, part), Doubles);
}

// The sums of a trimmed mean.
template <class E>
FEDINCENTIVE_INLINE void sum_row(const TileJob& job, const typename E::Lane* row, const Range<E>& ends, double* sums) {
  using Mask = typename E::Mask;
  Doubles totals[E::parts] = {};
  const bool middle = job.clients - 2 * job.trim <= 2;
  const Mask between = middle ? Mask{} : add_between<E>(job, row, ends, totals);
  const Mask low = kept_at_low<E>(job, row, ends, between);
  const Mask high = Mask{} + static_cast<typename E::Count>(job.clients - 2 * job.trim) - between - low;
  for (int part = 0; part < E::parts; ++part) {
    totals[part] += widen_part(ends.least, part) * to_doubles_part<E>(low, part) * job.shrink;
    totals[part] += widen_part(ends.most, part) * to_doubles_part<E>(high, part) * job.shrink;
    store(sums + part * (kVector / 8), totals[part]);
  }
}

template <class E>
void sum_cut(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  line_up<E>(job, scratch, begin, count);
  const auto* rows = reinterpret_cast<const typename E::Lane*>(scratch.wires);
  for (int t = 0; t < kTile<E>; t += 2 * kLanes<E>) {
    Range<E> ends[2];
    if (job.clients - 2 * job.trim <= 2) {
      find_middles<E>(job, rows + t * job.clients, ends);
    } else {
      const ByCount<E> low{job.trim, job.clients, {}}, high{job.clients - 1 - job.trim, job.clients, {}};
      for (int i = 0; i < 2; ++i) ends[i] = kept_ends<E>(job, rows + (t + i * kLanes<E>)*job.clients, low, high);
    }
    for (int i = 0; i < 2; ++i)
      sum_row<E>(job, rows + (t + i * kLanes<E>)*job.clients, ends[i], scratch.sums + t + i * kLanes<E>);
  }
}
