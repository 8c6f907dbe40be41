// The tile kernels, compiled once per instruction set. Before including this file a unit defines FEDINCENTIVE_ISA (its
// namespace) and FEDINCENTIVE_VECTOR_BYTES. Nothing here may use inline functions or templates with external linkage:
// the linker would keep one copy, perhaps the one the running CPU cannot execute.
//
// Lanes are coordinates. A tile is kTileBytes of every client; a wire is one row of a tile in scratch memory.
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "../core/half.hpp"
#include "../core/sorting.hpp"
#include "../core/types.hpp"

namespace fedincentive {
namespace FEDINCENTIVE_ISA {
namespace {

#include "vectors.inl"

// NaN becomes +infinity: the comparison is false for it. It sorts as the largest; kept ones are examined one by one.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector read_ordered(const typename E::Lane* from) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  return smaller(load<typename E::Vector>(from), infinity);
}

// sums[0..lanes) += factor * values
template <class V>
FEDINCENTIVE_INLINE void add_lanes(double* sums, V values, double factor) {
  for (int part = 0; part < static_cast<int>(sizeof(float)) * 2 / static_cast<int>(sizeof(values[0])); ++part) {
    double* to = sums + part * (kVector / 8);
    store(to, load<Doubles>(to) + widen_part(values, part) * factor);
  }
}

// The pieces of scratch memory; scratch_bytes() of reduce.cpp counts them. All are aligned to 64 bytes.
struct Scratch {
  unsigned char* staging;  // rows for what cannot be read in place: kGroup of kSpan values, or kTogether of a tile
  unsigned char* halves;   // kSpan of them, before they are widened
  double* sums;            // kSpan
  double* weights;         // kSpan
  unsigned char *low, *high, *counts;  // rows of a tile: 1, 1, 5
  unsigned char* wires;
};

inline Scratch divide(const TileJob& job) {
  Scratch scratch;
  scratch.staging = job.scratch;
  scratch.halves = scratch.staging + kGroup * kSpan * 8;
  scratch.sums = reinterpret_cast<double*>(scratch.halves + kSpan * 2);
  scratch.weights = scratch.sums + kSpan;
  scratch.low = reinterpret_cast<unsigned char*>(scratch.weights + kSpan);
  scratch.high = scratch.low + kTileBytes;
  scratch.counts = scratch.high + kTileBytes;
  scratch.wires = scratch.counts + 5 * kTileBytes;
  return scratch;
}

// Halves become floats, as many as a whole number of vectors covers: `from` and `to` have room for `full` of them.
inline void widen_halves(Dtype dtype, const uint16_t* from, float* to, int64_t full) {
  constexpr int lanes = kVector / 4;
  if (dtype == Dtype::float16)
    for (int64_t t = 0; t < full; t += lanes) store(to + t, widen_float16s(from + t));
  else
    for (int64_t t = 0; t < full; t += lanes) store(to + t, widen_bfloat16s(from + t));
}

// Where `count` values of a client from `begin` on can be read as `full` lanes: in place, or copied to a slot of
// staging memory if they are strided, halves, or fewer than a tile.
template <class E>
const typename E::Lane* source(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin, int64_t count,
                               int64_t full, int slot) {
  const int64_t item = item_size(job.dtype);
  const auto* base = static_cast<const unsigned char*>(job.segment.pointers[client]);
  const Layout* layout = job.segment.layouts ? job.segment.layouts[client] : nullptr;
  const bool whole = !layout && count == full;
  if (whole && item == sizeof(typename E::Lane)) return reinterpret_cast<const typename E::Lane*>(base + begin * item);
  auto* to = reinterpret_cast<typename E::Lane*>(scratch.staging) + slot * full;
  unsigned char* copy = item == sizeof(typename E::Lane) ? reinterpret_cast<unsigned char*>(to) : scratch.halves;
  if (layout)
    gather(base, *layout, item, begin, count, copy);
  else if (!whole)
    std::memcpy(copy, base + begin * item, static_cast<size_t>(count * item));
  if (!whole) std::memset(copy + count * item, 0, static_cast<size_t>((full - count) * item));
  if constexpr (sizeof(typename E::Lane) == 4) {
    const unsigned char* halves = whole ? base + begin * item : copy;
    if (item == 2) widen_halves(job.dtype, reinterpret_cast<const uint16_t*>(halves), to, full);
  }
  return to;
}

// With every line that is read, one of the same client a little further on is asked for, so that memory is busy while
// values are compared or added.
constexpr int kNear = 320, kFar = 1088;  // bytes: of many clients at a time, of few; not round, as strides often are

template <int Bytes, class Lane>
FEDINCENTIVE_INLINE void read_ahead(const Lane* const* from, int count, int64_t at) {
  if (at * sizeof(Lane) % 64 != 0) return;
  for (int i = 0; i < count; ++i) __builtin_prefetch(from[i] + at + Bytes / sizeof(Lane));
}

template <class E, int N>
void load_sorted(const typename E::Lane* const* from, typename E::Lane* to) {
  using Vector = typename E::Vector;
  using Network = SortingNetwork<N>;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    read_ahead<kNear>(from, N, t);
    Vector values[N];
    for (int i = 0; i < N; ++i) values[i] = read_ordered<E>(from[i] + t);
#pragma GCC unroll 64
    for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs[c][0]], values[Network::pairs[c][1]]);
    for (int i = 0; i < N; ++i) store(to + i * kTile<E> + t, values[i]);
  }
}

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

template <int N, bool PadFront, class V>
FEDINCENTIVE_INLINE void sort_bitonic(V* values) {
  using Network = BitonicNetwork<N, PadFront>;
#pragma GCC unroll 64
  for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs.at[c][0]], values[Network::pairs.at[c][1]]);
}

template <class E>
void compare_pairs(typename E::Lane* wires, const Pair* pairs, uint32_t count) {
  using Vector = typename E::Vector;
  for (uint32_t p = 0; p < count; ++p) {
    typename E::Lane* a = wires + pairs[p].low * kTile<E>;
    typename E::Lane* b = wires + pairs[p].high * kTile<E>;
#pragma GCC unroll 16
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      Vector x = load<Vector>(a + t), y = load<Vector>(b + t);
      exchange(x, y);
      store(a + t, x);
      store(b + t, y);
    }
  }
}

// Widening to float64 costs more than comparing, so four values are added in their own precision first: two roundings
// per value, however many clients there are. (An overflow there is not finite and is examined.)
template <class V>
FEDINCENTIVE_INLINE V sum_of_four(V a, V b, V c, V d) {
  return (a + b) + (c + d);
}

template <class V>
FEDINCENTIVE_INLINE Doubles add_values(Doubles total, const V* values, int count, int part) {
  int i = 0;
  for (; i + 4 <= count; i += 4)
    total += widen_part(sum_of_four(values[i], values[i + 1], values[i + 2], values[i + 3]), part);
  if (i + 2 <= count) {
    total += widen_part(values[i] + values[i + 1], part);
    i += 2;
  }
  if (i < count) total += widen_part(values[i], part);
  return total;
}

// Running sums stay in registers while all kept wires pass by.
template <class E>
void add_kept(const typename E::Lane* wires, const uint32_t* kept, uint32_t count, double* sums) {
  using Vector = typename E::Vector;
  constexpr int parts = E::parts, unroll = 4;
  for (int t = 0; t < kTile<E>; t += unroll * kLanes<E>) {
    Doubles totals[unroll * parts];
    for (int v = 0; v < unroll * parts; ++v) totals[v] = load<Doubles>(sums + t + v * (kVector / 8));
    for (uint32_t w = 0; w < count; w += 4) {
      const int number = count - w < 4 ? static_cast<int>(count - w) : 4;
      const typename E::Lane* from[4];
      for (int i = 0; i < number; ++i) from[i] = wires + kept[w + i] * kTile<E> + t;
      for (int v = 0; v < unroll; ++v) {
        Vector values[4];
        for (int i = 0; i < number; ++i) values[i] = load<Vector>(from[i] + v * kLanes<E>);
        for (int part = 0; part < parts; ++part)
          totals[v * parts + part] = add_values(totals[v * parts + part], values, number, part);
      }
    }
    for (int v = 0; v < unroll * parts; ++v) store(sums + t + v * (kVector / 8), totals[v]);
  }
}

template <class E>
void bound_kept(const typename E::Lane* wires, const uint32_t* kept, uint32_t count, typename E::Lane* low,
                typename E::Lane* high) {
  using Vector = typename E::Vector;
  for (uint32_t w = 0; w < count; ++w) {
    const typename E::Lane* from = wires + kept[w] * kTile<E>;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      const Vector value = load<Vector>(from + t);
      store(low + t, smaller(value, load<Vector>(low + t)));
      store(high + t, larger(load<Vector>(high + t), value));
    }
  }
}

// What happens to kept values: they are added up, or only their bounds are wanted (before weights are known to matter).
struct AddKept {
  double* sums;
  template <class E, class V>
  void take(int t, const V* values, int count) const {
    constexpr int parts = E::parts;
    for (int part = 0; part < parts; ++part) {
      double* to = sums + t + part * (kVector / 8);
      store(to, add_values(load<Doubles>(to), values, count, part));
    }
  }
  template <class E>
  void take_wires(const typename E::Lane* wires, const uint32_t* kept, uint32_t count) const {
    add_kept<E>(wires, kept, count, sums);
  }
};

template <class Lane>
struct BoundKept {
  Lane *low, *high;
  template <class E, class V>
  void take(int t, const V* values, int count) const {
    V bottom = load<V>(low + t), top = load<V>(high + t);
    for (int i = 0; i < count; ++i) {
      bottom = smaller(values[i], bottom);
      top = larger(values[i], top);
    }
    store(low + t, bottom);
    store(high + t, top);
  }
  template <class E>
  void take_wires(const typename E::Lane* wires, const uint32_t* kept, uint32_t count) const {
    bound_kept<E>(wires, kept, count, low, high);
  }
};

// Two sorted lists of K wires: the first keeps the smallest (or largest) K of both, in order again; the others are
// handed on as kept.
template <class E, int K, bool Highest, class Keep>
void displace(typename E::Lane* wires, const uint32_t* lists, const Keep& keep) {
  using Vector = typename E::Vector;
  typename E::Lane* at[2 * K];
  for (int i = 0; i < 2 * K; ++i) at[i] = wires + lists[i] * kTile<E>;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    Vector list[K], leaf[K];
    for (int i = 0; i < K; ++i) list[i] = load<Vector>(at[i] + t);
    for (int i = 0; i < K; ++i) leaf[i] = load<Vector>(at[K + i] + t);
    for (int i = 0; i < K; ++i) {
      if constexpr (Highest)
        exchange(leaf[K - 1 - i], list[i]);
      else
        exchange(list[i], leaf[K - 1 - i]);
    }
    sort_bitonic<K, !Highest>(list);
    for (int i = 0; i < K; ++i) store(at[i] + t, list[i]);
    keep.template take<E>(t, leaf, K);
  }
}

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

// Leaves the sums of a tile (and, where weights are trimmed, their total) in scratch.
using SumTile = void (*)(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count);

template <class E>
void sum_planned(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  fill(scratch.sums, 0, kTile<E>);
  run_plan<E>(job, scratch, begin, count, AddKept{scratch.sums});
}

#include "stream.inl"

// Kept are the values strictly between the smallest and the largest kept one, and of those equal to these the clients
// that a stable sort would keep: on the low side the first of them are trimmed, on the high side the last.
template <class E>
void sum_weighted_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  using Vector = typename E::Vector;
  using Mask = typename E::Mask;
  using Lane = typename E::Lane;
  using Count = typename E::Count;
  Lane* low = reinterpret_cast<Lane*>(scratch.low);
  Lane* high = reinterpret_cast<Lane*>(scratch.high);
  Count* counts = reinterpret_cast<Count*>(scratch.counts);
  Count *below = counts, *above = below + kTile<E>, *at_high = above + kTile<E>, *seen_low = at_high + kTile<E>,
        *seen_high = seen_low + kTile<E>;
  fill(scratch.sums, 0, kTile<E>);
  fill(scratch.weights, 0, kTile<E>);
  for (int t = 0; t < kTile<E>; ++t) {
    low[t] = static_cast<Lane>(__builtin_inf());
    high[t] = -static_cast<Lane>(__builtin_inf());
  }
  std::memset(counts, 0, sizeof(Count) * 5 * kTile<E>);
  run_plan<E>(job, scratch, begin, count, BoundKept<Lane>{low, high});
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
    const double weight = job.weights[client];
    const Vector ones = Vector{} + static_cast<Lane>(1);
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
      const Mask keep = keep_low & keep_high;
      store(seen_low + t, before_low - is_low);
      store(seen_high + t, before_high - is_high);
      add_lanes(scratch.sums + t, reinterpret_cast<Vector>(keep & reinterpret_cast<Mask>(value)), weight);
      add_lanes(scratch.weights + t, reinterpret_cast<Vector>(keep & reinterpret_cast<Mask>(ones)), weight);
    }
  }
}

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

// Sums become means, in place. `full` is a whole number of vectors.
template <class E>
void divide_sums(double* __restrict sums, const double* __restrict weights, double divisor, int64_t full) {
  const double reciprocal = 1 / divisor;
  for (int64_t t = 0; t < full; t += kVector / 8) {
    Doubles value = load<Doubles>(sums + t);
    if (divisor == 0)
      value /= load<Doubles>(weights + t);
    else if (sizeof(typename E::Lane) == 8)
      value /= divisor;
    else  // rounded twice, which float64 results alone would show
      value *= reciprocal;
    store(sums + t, value);
  }
}

// The same straight to where they belong. Returns whether all of them are finite.
inline bool write_means(float* __restrict to, const double* __restrict sums, double divisor, int64_t count) {
  constexpr int lanes = kVector / 8;
  const double reciprocal = 1 / divisor;
  LongMask finite = ~LongMask{};
  int64_t t = 0;
  for (; t + lanes <= count; t += lanes) {
    const Doubles value = load<Doubles>(sums + t) * reciprocal;
    finite &= (value - value) == Doubles{};
    store(to + t, to_floats(value));
  }
  bool all_finite = all_true(finite);
  for (; t < count; ++t) {
    const double value = sums[t] * reciprocal;
    all_finite &= value - value == 0;
    to[t] = static_cast<float>(value);
  }
  return all_finite;
}

// Divides, has unusual coordinates examined, rounds once and writes.
template <class E>
void finish(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, int64_t full) {
  double* sums = scratch.sums;
  const bool singles = job.dtype == Dtype::float32 && !job.wide_output;
  float* out = static_cast<float*>(job.segment.out) + begin;
  if (singles && job.divisor != 0 && write_means(out, sums, job.divisor, count)) return;
  divide_sums<E>(sums, scratch.weights, job.divisor, full);
  for (int64_t t = 0; t < count; ++t)
    if (!(sums[t] - sums[t] == 0)) sums[t] = job.examine(job.context, job, begin + t);
  if (singles) {
    for (int64_t t = 0; t < count; ++t) out[t] = static_cast<float>(sums[t]);
  } else if (job.wide_output || job.dtype == Dtype::float64) {
    std::memcpy(static_cast<double*>(job.segment.out) + begin, sums, static_cast<size_t>(count) * 8);
  } else {
    uint16_t* halves = static_cast<uint16_t*>(job.segment.out) + begin;
    for (int64_t t = 0; t < count; ++t)
      halves[t] = job.dtype == Dtype::float16 ? narrow_float16(sums[t]) : narrow_bfloat16(sums[t]);
  }
}

// Tile after tile.
template <class E>
void walk(const TileJob& job, int64_t begin, int64_t end, int64_t full, SumTile sum) {
  const Scratch scratch = divide(job);
  for (int64_t at = begin; at < end; at += full) {
    const int64_t count = end - at < full ? end - at : full;
    sum(job, scratch, at, count);
    finish<E>(job, scratch, at, count, full);
  }
}

template <class E>
void reduce(const TileJob& job, int64_t begin, int64_t end) {
  if (job.trim == 0) {
    walk<E>(job, begin, end, kSpan, job.weights ? sum_all<E, true> : sum_all<E, false>);
  } else if (job.weights) {
    walk<E>(job, begin, end, kTile<E>, sum_weighted_trimmed<E>);
  } else if (const SumTile streamed = streamed_sum<E>(job.clients, job.trim)) {
    walk<E>(job, begin, end, kTile<E>, streamed);
  } else {
    walk<E>(job, begin, end, kTile<E>, sum_planned<E>);
  }
}

// Any dtype to float64, for distances.
void widen(Dtype dtype, const void* from, double* to, int64_t count) {
  if (dtype == Dtype::float64) {
    std::memcpy(to, from, static_cast<size_t>(count) * 8);
  } else if (dtype == Dtype::float32) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<const float*>(from)[i];
  } else {
    constexpr int lanes = kVector / 4;
    for (int64_t i = 0; i < count; i += lanes) {
      uint16_t halves[lanes] = {};
      float floats[lanes];
      const int64_t number = count - i < lanes ? count - i : lanes;
      std::memcpy(halves, static_cast<const uint16_t*>(from) + i, static_cast<size_t>(number) * 2);
      widen_halves(dtype, halves, floats, lanes);
      for (int64_t lane = 0; lane < number; ++lane) to[i + lane] = floats[lane];
    }
  }
}

// Eight running sums by position modulo 8, whatever the vector width, added up in one order at the end.
void squared_distances(const double* one, const double* others, int64_t stride, int64_t count, int64_t length,
                       double* out) {
  constexpr int lanes = kVector / 8, vectors = 8 / lanes > 0 ? 8 / lanes : 1;
  for (int64_t j = 0; j < count; ++j) {
    const double* other = others + j * stride;
    Doubles sums[vectors] = {};
    for (int64_t t = 0; t < length; t += 8) {  // rows are padded with zeros to a multiple of 8
      for (int v = 0; v < vectors; ++v) {
        const Doubles gap = load<Doubles>(one + t + v * lanes) - load<Doubles>(other + t + v * lanes);
        sums[v] += gap * gap;
      }
    }
    double parts[8];
    std::memcpy(parts, sums, sizeof parts);
    out[j] = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  }
}

// The benchmarks' yardstick: long runs of a few clients at a time, asked for in advance, added up in registers.
template <int Group>
void add_plain(const void* const* pointers, int64_t clients, int64_t at, int64_t count, float* sums) {
  constexpr int lanes = kVector / 4, vectors = 4, line = 16;
  for (; clients >= Group; clients -= Group, pointers += Group) {
    const auto* from = reinterpret_cast<const float* const*>(pointers);
    int64_t t = 0;
    for (; t + vectors * lanes <= count; t += vectors * lanes) {
      for (int ahead = 0; ahead < vectors * lanes; ahead += line) read_ahead<kFar>(from, Group, at + t + ahead);
      Floats totals[vectors];
      for (int v = 0; v < vectors; ++v) totals[v] = load<Floats>(sums + t + v * lanes);
      for (int c = 0; c < Group; ++c)
        for (int v = 0; v < vectors; ++v) totals[v] += load<Floats>(from[c] + at + t + v * lanes);
      for (int v = 0; v < vectors; ++v) store(sums + t + v * lanes, totals[v]);
    }
    for (; t < count; ++t)
      for (int c = 0; c < Group; ++c) sums[t] += from[c][at + t];
  }
  if constexpr (Group > 1) add_plain<Group / 2>(pointers, clients, at, count, sums);
}

void plain_mean(const void* const* pointers, int64_t clients, int64_t begin, int64_t end, float* out) {
  constexpr int span = 4096;
  const float scale = 1.0f / static_cast<float>(clients);
  alignas(64) float sums[span];
  for (int64_t at = begin; at < end; at += span) {
    const int64_t count = end - at < span ? end - at : span;
    std::memset(sums, 0, sizeof sums);
    add_plain<8>(pointers, clients, at, count, sums);
    for (int64_t t = 0; t < count; ++t) out[at + t] = sums[t] * scale;
  }
}

// x - x is zero for finite values alone, and a sum that was NaN once stays so.
template <class V, class Lane>
bool finite_lanes(const Lane* from, int64_t count) {
  constexpr int lanes = kVector / sizeof(Lane), vectors = 8;
  V sums[vectors] = {};
  Lane total = 0;
  int64_t i = 0;
  for (; i + vectors * lanes <= count; i += vectors * lanes) {
    for (int v = 0; v < vectors; ++v) {
      __builtin_prefetch(from + i + v * lanes + 4096 / sizeof(Lane));  // beyond what the processor asks for itself
      const V values = load<V>(from + i + v * lanes);
      sums[v] += values - values;
    }
  }
  for (; i < count; ++i) total += from[i] - from[i];
  for (int v = 0; v < vectors; ++v)
    for (int lane = 0; lane < lanes; ++lane) total += sums[v][lane];
  return total == 0;
}

bool all_finite(Dtype dtype, const void* from, int64_t count) {
  if (dtype == Dtype::float32) return finite_lanes<Floats>(static_cast<const float*>(from), count);
  if (dtype == Dtype::float64) return finite_lanes<Doubles>(static_cast<const double*>(from), count);
  const unsigned exponent = dtype == Dtype::float16 ? 0x7c00 : 0x7f80;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) finite &= (static_cast<const uint16_t*>(from)[i] & exponent) != exponent;
  return finite;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FEDINCENTIVE_ISA_NAME, reduce<Singles>, reduce<Wides>, widen,
                         squared_distances,     plain_mean,      all_finite};

}  // namespace FEDINCENTIVE_ISA
}  // namespace fedincentive
