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

constexpr int kTileBytes = 256;
constexpr int kSpan = 512;  // values of a client read at a time where nothing is sorted
constexpr int kGroup = 4;   // clients added up at a time there

template <class E>
constexpr int kLanes = kVector / sizeof(typename E::Lane);
template <class E>
constexpr int kTile = kTileBytes / sizeof(typename E::Lane);

// NaN becomes +infinity: the comparison is false for it. It sorts as the largest; kept ones are examined one by one.
template <class E>
inline typename E::Vector read_ordered(const typename E::Item* from) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  return smaller(E::read(from), infinity);
}

// sums[0..lanes) += factor * values
template <class V>
inline void add_lanes(double* sums, V values, double factor) {
  for (int part = 0; part < static_cast<int>(sizeof(float)) * 2 / static_cast<int>(sizeof(values[0])); ++part) {
    double* to = sums + part * (kVector / 8);
    store(to, load<Doubles>(to) + widen_part(values, part) * factor);
  }
}

// The pieces of scratch memory; scratch_bytes() of reduce.cpp counts them. All are aligned to 64 bytes.
struct Scratch {
  unsigned char* staging;  // rows for tails and strided clients: kGroup of kSpan values, or kMaxBlock of a tile
  double* sums;            // kSpan
  double* weights;         // kSpan
  unsigned char *low, *high, *counts;  // rows of a tile: 1, 1, 5
  unsigned char* wires;
};

inline Scratch divide(const TileJob& job) {
  Scratch scratch;
  scratch.staging = job.scratch;
  scratch.sums = reinterpret_cast<double*>(scratch.staging + kGroup * kSpan * 8);
  scratch.weights = scratch.sums + kSpan;
  scratch.low = reinterpret_cast<unsigned char*>(scratch.weights + kSpan);
  scratch.high = scratch.low + kTileBytes;
  scratch.counts = scratch.high + kTileBytes;
  scratch.wires = scratch.counts + 5 * kTileBytes;
  return scratch;
}

// Where `count` values of a client from `begin` on can be read as if they were `full`.
template <class E>
inline const typename E::Item* source(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin,
                                      int64_t count, int64_t full, int slot) {
  using Item = typename E::Item;
  const Item* base = static_cast<const Item*>(job.segment.pointers[client]);
  const Layout* layout = job.segment.layouts ? job.segment.layouts[client] : nullptr;
  if (!layout && count == full) return base + begin;
  Item* to = reinterpret_cast<Item*>(scratch.staging) + slot * full;
  if (layout)
    gather(base, *layout, sizeof(Item), begin, count, to);
  else
    std::memcpy(static_cast<void*>(to), base + begin, static_cast<size_t>(count) * sizeof(Item));
  std::memset(static_cast<void*>(to + count), 0, static_cast<size_t>(full - count) * sizeof(Item));
  return to;
}

template <class E, int N>
void load_sorted(const typename E::Item* const* from, typename E::Lane* to) {
  using Vector = typename E::Vector;
  using Network = SortingNetwork<N>;
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    Vector values[N];
    for (int i = 0; i < N; ++i) values[i] = read_ordered<E>(from[i] + t);
#pragma GCC unroll 64
    for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs[c][0]], values[Network::pairs[c][1]]);
    for (int i = 0; i < N; ++i) store(to + i * kTile<E> + t, values[i]);
  }
}

template <class E>
void load_block(const TileJob& job, const Scratch& scratch, const Step& step, int64_t begin, int64_t count) {
  using Loader = void (*)(const typename E::Item* const*, typename E::Lane*);
  static constexpr Loader loaders[] = {load_sorted<E, 1>, load_sorted<E, 2>, load_sorted<E, 3>, load_sorted<E, 4>,
                                       load_sorted<E, 5>, load_sorted<E, 6>, load_sorted<E, 7>, load_sorted<E, 8>,
load_sorted<E, 9>, load_sorted<E, 10>, load_sorted<E, 11>, load_sorted<E, 12>,
load_sorted<E, 13>, load_sorted<E, 14>, load_sorted<E, 15>, load_sorted<E, 16>};
  const typename E::Item* from[kMaxBlock];
  for (uint32_t i = 0; i < step.count; ++i)
    from[i] = source<E>(job, scratch, step.begin + i, begin, count, kTile<E>, static_cast<int>(i));
  loaders[step.count - 1](from, reinterpret_cast<typename E::Lane*>(scratch.wires) + step.wire * kTile<E>);
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

// Eight running sums stay in registers while all kept wires pass by.
template <class E>
void add_kept(const typename E::Lane* wires, const uint32_t* kept, uint32_t count, double* sums) {
  constexpr int lanes = kVector / 8, block = kTile<E> < 8 * lanes ? kTile<E> : 8 * lanes;
  for (int t = 0; t < kTile<E>; t += block) {
    Doubles totals[block / lanes];
    for (int v = 0; v < block / lanes; ++v) totals[v] = load<Doubles>(sums + t + v * lanes);
    for (uint32_t w = 0; w < count; ++w) {
      const typename E::Lane* from = wires + kept[w] * kTile<E> + t;
      for (int v = 0; v < block / lanes; ++v) totals[v] += load_wide(from + v * lanes);
    }
    for (int v = 0; v < block / lanes; ++v) store(sums + t + v * lanes, totals[v]);
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

template <class E, class Keep>
inline void run_plan(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, Keep&& keep) {
  auto* wires = reinterpret_cast<typename E::Lane*>(scratch.wires);
  for (int64_t s = 0; s < job.plan.step_count; ++s) {
    const Step& step = job.plan.steps[s];
    switch (step.kind) {
      case StepKind::load: load_block<E>(job, scratch, step, begin, count); break;
      case StepKind::compare: compare_pairs<E>(wires, job.plan.pairs + step.begin, step.count); break;
      case StepKind::quad: break;
      case StepKind::keep: keep(job.plan.kept + step.begin, step.count); break;
    }
  }
}

template <class E>
void sum_trimmed(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  const auto* wires = reinterpret_cast<const typename E::Lane*>(scratch.wires);
  run_plan<E>(job, scratch, begin, count,
              [&](const uint32_t* kept, uint32_t number) { add_kept<E>(wires, kept, number, scratch.sums); });
}

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
  for (int t = 0; t < kTile<E>; ++t) {
    low[t] = static_cast<Lane>(__builtin_inf());
    high[t] = -static_cast<Lane>(__builtin_inf());
  }
  std::memset(counts, 0, sizeof(Count) * 5 * kTile<E>);
  const auto* wires = reinterpret_cast<const Lane*>(scratch.wires);
  run_plan<E>(job, scratch, begin, count,
              [&](const uint32_t* kept, uint32_t number) { bound_kept<E>(wires, kept, number, low, high); });
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
      const Mask keep_low = reinterpret_cast<Mask>(value > bottom) |
                            (is_low & reinterpret_cast<Mask>(before_low >= trimmed_low));
      const Mask keep_high = reinterpret_cast<Mask>(value < top) |
                             (is_high & reinterpret_cast<Mask>(before_high < kept_high));
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
void sum_group(const typename E::Item* const* from, const double* weights, double* sums) {
  using Vector = typename E::Vector;
  constexpr int lanes = kLanes<E>, halves = sizeof(typename E::Lane) == 4 ? 2 : 1, unroll = 8 / halves / 2;
  for (int t = 0; t < kSpan; t += unroll * lanes) {
    Doubles totals[unroll * halves];
    for (int v = 0; v < unroll * halves; ++v) totals[v] = load<Doubles>(sums + t + v * (kVector / 8));
    for (int c = 0; c < Group; ++c) {
      for (int v = 0; v < unroll; ++v) {
        const Vector values = E::read(from[c] + t + v * lanes);
        for (int h = 0; h < halves; ++h) {
          Doubles wide = widen_part(values, h);
          if constexpr (Weighted) wide = wide * weights[c];
          totals[v * halves + h] += wide;
        }
      }
    }
    for (int v = 0; v < unroll * halves; ++v) store(sums + t + v * (kVector / 8), totals[v]);
  }
}

template <class E, bool Weighted>
void sum_all(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  const typename E::Item* from[kGroup];
  int64_t client = 0;
  for (; client + kGroup <= job.clients; client += kGroup) {
    for (int c = 0; c < kGroup; ++c) from[c] = source<E>(job, scratch, client + c, begin, count, kSpan, c);
    sum_group<E, Weighted, kGroup>(from, job.weights + client, scratch.sums);
  }
  for (; client < job.clients; ++client) {
    from[0] = source<E>(job, scratch, client, begin, count, kSpan, 0);
    sum_group<E, Weighted, 1>(from, job.weights + client, scratch.sums);
  }
}

// Sums become means, in place. Returns whether all of them are finite. `full` is a whole number of vectors.
template <class E>
bool divide_sums(double* __restrict sums, const double* __restrict weights, double divisor, int64_t full) {
  constexpr int lanes = kVector / 8;
  const double reciprocal = 1 / divisor;
  LongMask finite = ~LongMask{};
  for (int64_t t = 0; t < full; t += lanes) {
    Doubles value = load<Doubles>(sums + t);
    if (divisor == 0)
      value /= load<Doubles>(weights + t);
    else if (sizeof(typename E::Lane) == 8)
      value /= divisor;
    else  // rounded twice, which float64 results alone would show
      value *= reciprocal;
    store(sums + t, value);
    finite &= (value - value) == Doubles{};
  }
  bool all_finite = true;
  for (int lane = 0; lane < lanes; ++lane) all_finite &= finite[lane] != 0;
  return all_finite;
}

inline void write_all(float* __restrict to, const double* __restrict from, int64_t count) {
  constexpr int lanes = kVector / 8;
  int64_t t = 0;
  for (; t + lanes <= count; t += lanes) store(to + t, to_floats(load<Doubles>(from + t)));
  for (; t < count; ++t) to[t] = static_cast<float>(from[t]);
}

// Divides, has unusual coordinates examined, rounds once and writes.
template <class E>
void finish(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, int64_t full) {
  double* sums = scratch.sums;
  if (!divide_sums<E>(sums, scratch.weights, job.divisor, full)) {
    for (int64_t t = 0; t < count; ++t)
      if (!(sums[t] - sums[t] == 0)) sums[t] = job.examine(job.context, job, begin + t);
  }
  auto* out = static_cast<typename E::Item*>(job.segment.out) + begin;
  if (job.wide_output || sizeof(typename E::Item) == 8) {
    std::memcpy(static_cast<double*>(job.segment.out) + begin, sums, static_cast<size_t>(count) * 8);
  } else if constexpr (sizeof(typename E::Item) == 4) {
    write_all(out, sums, count);
  } else if constexpr (sizeof(typename E::Item) == 2) {
    for (int64_t t = 0; t < count; ++t) out[t] = E::narrow(sums[t]);
  }
}

template <class E>
void reduce(const TileJob& job, int64_t begin, int64_t end) {
  const Scratch scratch = divide(job);
  const int64_t full = job.trim == 0 ? kSpan : kTile<E>;
  for (int64_t at = begin; at < end; at += full) {
    const int64_t count = end - at < full ? end - at : full;
    fill(scratch.sums, 0, full);
    if (job.trim == 0 && job.weights) {
      sum_all<E, true>(job, scratch, at, count);
    } else if (job.trim == 0) {
      sum_all<E, false>(job, scratch, at, count);
    } else if (job.weights) {
      fill(scratch.weights, 0, full);
      sum_weighted_trimmed<E>(job, scratch, at, count);
    } else {
      sum_trimmed<E>(job, scratch, at, count);
    }
    finish<E>(job, scratch, at, count, full);
  }
}

template <class E>
void widen(const void* from, double* to, int64_t count) {
  const auto* items = static_cast<const typename E::Item*>(from);
  int64_t i = 0;
  for (; i + kLanes<E> <= count; i += kLanes<E>) {
    typename E::Lane lanes[kLanes<E>];
    store(lanes, E::read(items + i));
    for (int lane = 0; lane < kLanes<E>; ++lane) to[i + lane] = lanes[lane];
  }
  if (i == count) return;
  typename E::Item tail[kLanes<E>] = {};
  std::memcpy(tail, items + i, static_cast<size_t>(count - i) * sizeof(typename E::Item));
  typename E::Lane lanes[kLanes<E>];
  store(lanes, E::read(tail));
  for (int64_t lane = 0; i + lane < count; ++lane) to[i + lane] = lanes[lane];
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

// Few clients: sums in registers, all clients side by side. Many: a group at a time in long runs, which memory likes more.
template <int Group>
void add_plain(const void* const* pointers, int64_t at, int span, float* sums, float scale) {
  constexpr int lanes = kVector / 4, vectors = 8;
  for (int t = 0; t < span; t += vectors * lanes) {
    Floats totals[vectors];
    for (int v = 0; v < vectors; ++v) totals[v] = load<Floats>(sums + t + v * lanes);
    for (int c = 0; c < Group; ++c) {
      const float* from = static_cast<const float*>(pointers[c]) + at + t;
      for (int v = 0; v < vectors; ++v) totals[v] += load<Floats>(from + v * lanes);
    }
    for (int v = 0; v < vectors; ++v) store(sums + t + v * lanes, totals[v] * scale);
  }
}

void plain_mean(const void* const* pointers, int64_t clients, int64_t begin, int64_t end, float* out) {
  constexpr int span = 1024, lanes = kVector / 4, vectors = 8, block = lanes * vectors;
  const float scale = 1.0f / static_cast<float>(clients);
  int64_t at = begin;
  if (clients > 20) {
    alignas(64) float sums[span];
    for (; at + span <= end; at += span) {
      std::memset(sums, 0, sizeof sums);
      int64_t client = 0;
      for (; client + 4 <= clients; client += 4) add_plain<4>(pointers + client, at, span, sums, 1.0f);
      for (; client < clients; ++client) add_plain<1>(pointers + client, at, span, sums, 1.0f);
      for (int t = 0; t < span; t += lanes) store(out + at + t, load<Floats>(sums + t) * scale);
    }
  }
  for (; at + block <= end; at += block) {
    Floats sums[vectors] = {};
    for (int64_t client = 0; client < clients; ++client) {
      const float* from = static_cast<const float*>(pointers[client]) + at;
      for (int v = 0; v < vectors; ++v) sums[v] += load<Floats>(from + v * lanes);
    }
    for (int v = 0; v < vectors; ++v) store(out + at + v * lanes, sums[v] * scale);
  }
  for (; at < end; ++at) {
    float sum = 0;
    for (int64_t client = 0; client < clients; ++client) sum += static_cast<const float*>(pointers[client])[at];
    out[at] = sum * scale;
  }
}

double read_all(const void* pointer, int64_t bytes) {
  const float* from = static_cast<const float*>(pointer);
  constexpr int lanes = kVector / 4;
  Floats sums[8] = {};
  for (int64_t i = 0; i + 8 * lanes <= bytes / 4; i += 8 * lanes)
    for (int v = 0; v < 8; ++v) sums[v] += load<Floats>(from + i + v * lanes);
  double total = 0;
  for (int v = 0; v < 8; ++v)
    for (int lane = 0; lane < lanes; ++lane) total += sums[v][lane];
  return total;
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FEDINCENTIVE_ISA_NAME,
                         {reduce<Float32>, reduce<Float64>, reduce<Float16>, reduce<BFloat16>},
                         {widen<Float32>, widen<Float64>, widen<Float16>, widen<BFloat16>},
                         squared_distances,
                         plain_mean,
                         read_all};

}  // namespace FEDINCENTIVE_ISA
}  // namespace fedincentive
