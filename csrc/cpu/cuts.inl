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

// The greatest number below a; below -infinity a NaN, which is below all.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector number_below(typename E::Vector a) {
  using Mask = typename E::Mask;
  constexpr int sign = sizeof(typename E::Lane) * 8 - 1;
  const Mask zero = reinterpret_cast<Mask>(a == typename E::Vector{});
  const Mask minus = Mask{} + static_cast<typename E::Count>(uint64_t{1} << sign);
  Mask bits = (zero & minus) | (~zero & reinterpret_cast<Mask>(a));
  bits += 1 | ~(bits >> sign);
  return reinterpret_cast<typename E::Vector>(bits);
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

// Where a cut is among the values of a row: above `low` and up to `high`, which need not be among them, and how many or
// what weight is not above either. A guess only counts, which is three times as fast as a search; what is left between
// few values is searched.
template <class E>
struct Bracket {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  using Lane = typename E::Lane;
  const Lane* row;
  Lane wanted, doubt, half;  // up to the cut; what rounding may have added; half of one client's
  Vector low, high, under, upto;

  // At first NaN, as nothing is not above it, and infinity.
  Bracket(const Lane* row, double wanted, double doubt, double half, double all)
      : row(row),
        wanted(static_cast<Lane>(wanted)),
        doubt(static_cast<Lane>(doubt)),
        half(static_cast<Lane>(half)),
        low(Vector{} + static_cast<Lane>(__builtin_nan(""))),
        high(Vector{} + static_cast<Lane>(__builtin_inf())),
        under{},
        upto(Vector{} + static_cast<Lane>(all)) {}

  FEDINCENTIVE_INLINE void decide(Vector pivot, Vector amount) {
    const Mask reached =
        reinterpret_cast<Mask>(amount > Vector{} + (wanted + doubt)) & reinterpret_cast<Mask>(pivot < high);
    const Mask missed = reinterpret_cast<Mask>(amount < Vector{} + (wanted - doubt));
    high = choose<E>(reached, pivot, high);
    upto = choose<E>(reached, amount, upto);
    low = choose<E>(missed, pivot, low);
    under = choose<E>(missed, amount, under);
  }
  FEDINCENTIVE_INLINE Mask open() const {
    return reinterpret_cast<Mask>(low != low) |
           reinterpret_cast<Mask>(high == Vector{} + static_cast<Lane>(__builtin_inf()));
  }
  FEDINCENTIVE_INLINE void close(const Range<E>& range) {
    low = choose<E>(reinterpret_cast<Mask>(low != low), number_below<E>(range.least), low);
    high = smaller(range.most, high);
  }
  // Where the cut would be if the values were spread evenly.
  FEDINCENTIVE_INLINE Vector guess() const {
    const Vector even = low + (high - low) * ((wanted + half - under) / (upto - under + 2 * half));
    const Mask inside = reinterpret_cast<Mask>(even > low) & reinterpret_cast<Mask>(even < high);
    return choose<E>(inside, even, halfway<E>(low, high));
  }
  // Of counts: the first value above `low`, or the last up to `high`.
  FEDINCENTIVE_INLINE Mask is_next() const { return reinterpret_cast<Mask>(under + half == Vector{} + wanted); }
  FEDINCENTIVE_INLINE Mask is_last() const { return reinterpret_cast<Mask>(upto - half == Vector{} + wanted); }
  FEDINCENTIVE_INLINE Mask is_found() const { return is_next() | is_last(); }
};

// How many values of each row are not above its pivot.
template <class E>
struct Numbers {
  template <int N>
  FEDINCENTIVE_INLINE void upto(int64_t clients, const typename E::Lane* const (&rows)[N],
                                const typename E::Vector (&pivots)[N], typename E::Vector (&amounts)[N]) const {
    typename E::Mask numbers[N] = {};
    for (int64_t client = 0; client < clients; ++client)
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const auto value = load<typename E::Vector>(rows[i] + client * kLanes<E>);
        numbers[i] = count_where(numbers[i], not_above(value, pivots[i]));
      }
    for (int i = 0; i < N; ++i) amounts[i] = __builtin_convertvector(numbers[i], typename E::Vector);
  }
};

// What weight of each row is not above its pivot, about.
template <class E>
struct AboutWeights {
  const typename E::Lane* weights;
  template <int N>
  FEDINCENTIVE_INLINE void upto(int64_t clients, const typename E::Lane* const (&rows)[N],
                                const typename E::Vector (&pivots)[N], typename E::Vector (&amounts)[N]) const {
    for (int i = 0; i < N; ++i) amounts[i] = typename E::Vector{};
    for (int64_t client = 0; client < clients; ++client) {
      const typename E::Vector weight = typename E::Vector{} + weights[client];
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const auto value = load<typename E::Vector>(rows[i] + client * kLanes<E>);
        amounts[i] += only(not_above(value, pivots[i]), weight);
      }
    }
  }
};

// The last value of each row that is not above its pivot, and the first that is.
template <class E>
FEDINCENTIVE_INLINE void neighbours(int64_t clients, const typename E::Lane* const (&rows)[2],
                                    const typename E::Vector (&pivots)[2], typename E::Vector (&before)[2],
                                    typename E::Vector (&after)[2]) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  for (int i = 0; i < 2; ++i) {
    before[i] = -infinity;
    after[i] = infinity;
  }
  for (int64_t client = 0; client < clients; ++client)
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const auto value = load<typename E::Vector>(rows[i] + client * kLanes<E>);
      const auto where = not_above(value, pivots[i]);
      before[i] = larger_where(where, before[i], value);
      after[i] = smaller_where(elsewhere(where), after[i], value);
    }
}

// Some clients' values, sorted, between which a cut is likely to be.
constexpr int kSample = 2 * kMaxBlock;

template <class E>
FEDINCENTIVE_INLINE void sort_sample(const typename E::Lane* row, int64_t clients, typename E::Vector* sample) {
  for (int i = 0; i < kSample; ++i) sample[i] = load<typename E::Vector>(row + i * clients / kSample * kLanes<E>);
  sort_ends<kSample, kSample>(sample);
}

struct Places {
  int low, high;
};

inline Places likely_places(double part) {
  const double middle = part * kSample - 0.5, spread = 1.5 * __builtin_sqrt(kSample * part * (1 - part));
  const int low = static_cast<int>(middle - spread), high = static_cast<int>(middle + spread + 1);
  return {low < 0 ? 0 : low, high > kSample - 1 ? kSample - 1 : high};
}

// The first guesses, from samples.
template <class E, class Amounts>
FEDINCENTIVE_INLINE void begin_both(int64_t clients, const Amounts& amounts, Bracket<E>& one, Bracket<E>& two,
                                    double all) {
  typename E::Vector sample[kSample], pivots[4], found[4];
  const Places first = likely_places(one.wanted / all), second = likely_places(two.wanted / all);
  sort_sample<E>(one.row, clients, sample);
  pivots[0] = sample[first.low];
  pivots[1] = sample[first.high];
  if (two.row != one.row) sort_sample<E>(two.row, clients, sample);
  pivots[2] = sample[second.low];
  pivots[3] = sample[second.high];
  amounts.template upto<4>(clients, {one.row, one.row, two.row, two.row}, pivots, found);
  for (int i = 0; i < 2; ++i) {
    one.decide(pivots[i], found[i]);
    two.decide(pivots[2 + i], found[2 + i]);
  }
  if (all_true(~(one.open() | two.open()))) return;
  one.close(range_of<E>(one.row, clients));
  two.close(range_of<E>(two.row, clients));
}

template <class E, class Amounts>
FEDINCENTIVE_INLINE void guess_both(int64_t clients, const Amounts& amounts, Bracket<E>& one, Bracket<E>& two) {
  const typename E::Vector pivots[2] = {one.guess(), two.guess()};
  typename E::Vector found[2];
  amounts.template upto<2>(clients, {one.row, two.row}, pivots, found);
  one.decide(pivots[0], found[0]);
  two.decide(pivots[1], found[1]);
}

// What is between the ends of two brackets is searched.
template <class E, class One, class Two>
FEDINCENTIVE_INLINE void search_rest(const TileJob& job, const Bracket<E>& one, const Bracket<E>& two,
                                     const One& by_one, const Two& by_two, typename E::Vector (&found)[2]) {
  typename E::Vector least[2], most[2], other[2];
  const typename E::Lane* const rows[2] = {one.row, two.row};
  neighbours<E>(job.clients, rows, {one.low, two.low}, other, least);
  neighbours<E>(job.clients, rows, {one.high, two.high}, most, other);
  Search<E, One> first(one.row, by_one, least[0], most[0]);
  Search<E, Two> second(two.row, by_two, least[1], most[1]);
  first.under = one.under;
  first.upto = one.upto;
  second.under = two.under;
  second.upto = two.upto;
  finish_both<E>(job, first, second);
  found[0] = first.least;
  found[1] = second.least;
}

constexpr int kMostGuesses = 16;

// The values of two ranks, of two rows or the same: two at a time, as one alone would wait for its own results.
template <class E>
FEDINCENTIVE_INLINE void find_ranks(const TileJob& job, const typename E::Lane* row, int64_t rank,
                                    const typename E::Lane* other, int64_t other_rank, typename E::Vector (&found)[2]) {
  using Vector = typename E::Vector;
  const auto all = static_cast<double>(job.clients);
  const auto bracket = [&](const typename E::Lane* row, int64_t rank) {
    return Bracket<E>(row, static_cast<double>(rank) + 0.5, 0, 0.5, all);
  };
  Bracket<E> one = bracket(row, rank), two = bracket(other, other_rank);
  const Numbers<E> numbers;
  begin_both<E>(job.clients, numbers, one, two, all);
  for (int guess = 0; guess < kMostGuesses && !all_true(one.is_found() & two.is_found()); ++guess)
    guess_both<E>(job.clients, numbers, one, two);
  if (!all_true(one.is_found() & two.is_found())) {
    const ByCount<E> by_one{rank, job.clients, {}}, by_two{other_rank, job.clients, {}};
    return search_rest<E>(job, one, two, by_one, by_two, found);
  }
  Vector before[2], after[2];
  neighbours<E>(job.clients, {row, other},
                {choose<E>(one.is_next(), one.low, one.high), choose<E>(two.is_next(), two.low, two.high)}, before,
                after);
  found[0] = choose<E>(one.is_next(), after[0], before[0]);
  found[1] = choose<E>(two.is_next(), after[1], before[1]);
}

// The least and the greatest of the kept values of a row.
template <class E>
FEDINCENTIVE_INLINE Range<E> kept_by_count(const TileJob& job, const typename E::Lane* row) {
  typename E::Vector found[2];
  find_ranks<E>(job, row, job.trim, row, job.clients - 1 - job.trim, found);
  return {found[0], found[1]};
}

// The weights as they are added up by guesses, to memory that is free: where values were staged, for one.
template <class E>
const typename E::Lane* about_weights(const TileJob& job, unsigned char* to) {
  auto* weights = reinterpret_cast<typename E::Lane*>(to);
  for (int64_t client = 0; client < job.clients; ++client)
    weights[client] = static_cast<typename E::Lane>(job.weights[client]);
  return weights;
}
constexpr int64_t kMostGuessed = kGroup * kSpan;  // clients whose weights find room there

constexpr int kMostShareGuesses = 8;

// The same where weights are trimmed: guesses until few clients are between, and then a search that adds up exactly.
template <class E>
FEDINCENTIVE_INLINE Range<E> kept_by_weight(const TileJob& job, const typename E::Lane* row,
                                            const typename E::Lane* weights) {
  const ByWeight<E, false> low{job.share, {}};
  const ByWeight<E, true> high{job.share, {}};
  typename E::Vector found[2];
  const double all = 1, each = all / static_cast<double>(job.clients);
  const double doubt = 1e-6 + static_cast<double>(job.clients) * 0x1p-23;
  Bracket<E> one(row, job.share, doubt, each / 2, all), two(row, all - job.share, doubt, each / 2, all);
  if (job.clients <= kMostGuessed) {
    const AboutWeights<E> amounts{weights};
    begin_both<E>(job.clients, amounts, one, two, all);
    const auto near = [&](const Bracket<E>& bracket) {
      return reinterpret_cast<typename E::Mask>(bracket.upto - bracket.under <=
                                                typename E::Vector{} + static_cast<typename E::Lane>(4 * each));
    };
    for (int guess = 0; guess < kMostShareGuesses && !all_true(near(one) & near(two)); ++guess)
      guess_both<E>(job.clients, amounts, one, two);
  }
  search_rest<E>(job, one, two, low, high, found);
  return {found[0], found[1]};
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
FEDINCENTIVE_INLINE void find_middles(const TileJob& job, const typename E::Lane* row, Range<E>* ends) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  const typename E::Lane* other = row + job.clients * kLanes<E>;
  typename E::Vector found[2];
  find_ranks<E>(job, row, job.trim, other, job.trim, found);
  for (int i = 0; i < 2; ++i) ends[i] = {found[i], found[i]};
  if (job.clients - 2 * job.trim == 1) return;
  ends[0].most = next_kept<E>(job, row, found[0], infinity);
  ends[1].most = next_kept<E>(job, other, found[1], infinity);
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
      for (int i = 0; i < 2; ++i) ends[i] = kept_by_count<E>(job, rows + (t + i * kLanes<E>)*job.clients);
    }
    for (int i = 0; i < 2; ++i)
      sum_row<E>(job, rows + (t + i * kLanes<E>)*job.clients, ends[i], scratch.sums + t + i * kLanes<E>);
  }
}
