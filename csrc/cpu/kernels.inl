// The tile kernels, compiled once per instruction set. Before including this file a unit defines FEDINCENTIVE_ISA (its
// namespace) and FEDINCENTIVE_VECTOR_BYTES. Nothing here may use inline functions or templates with external linkage:
// the linker would keep one copy, perhaps the one the running CPU cannot execute.
//
// Lanes are coordinates. A tile is kTileBytes of every client; a wire is one row of a tile in scratch memory.
#include <cstdint>
#include <cstring>

#include "../core/half.hpp"
#include "../core/sorting.hpp"
#include "../core/types.hpp"

namespace fedincentive {
namespace FEDINCENTIVE_ISA {
namespace {

constexpr int kVector = FEDINCENTIVE_VECTOR_BYTES;
constexpr int kTileBytes = 256;
constexpr int kMaxTile = 64;  // values of a tile: 64 lanes of float or 32 of double

typedef float Floats __attribute__((vector_size(kVector)));
typedef float HalfFloats __attribute__((vector_size(kVector / 2)));
typedef double Doubles __attribute__((vector_size(kVector)));
typedef uint32_t Words __attribute__((vector_size(kVector)));
typedef uint16_t HalfWords __attribute__((vector_size(kVector / 2)));
typedef int32_t IntMask __attribute__((vector_size(kVector)));
typedef int64_t LongMask __attribute__((vector_size(kVector)));

template <class V, class T>
inline V load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}

template <class V, class T>
inline void store(T* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

// A comparator is an exchange: both values survive, signed zeros included.
template <class V>
inline V lower(V a, V b) {
  return a < b ? a : b;
}
template <class V>
inline V upper(V a, V b) {
  return a < b ? b : a;
}
template <class V>
inline void exchange(V& a, V& b) {
  const V low = lower(a, b);
  b = upper(a, b);
  a = low;
}

struct Float32 {
  using Item = float;
  using Lane = float;
  using Vector = Floats;
  using Mask = IntMask;
  using Count = int32_t;
  static Vector read(const Item* from) { return load<Vector>(from); }
  static void write(Item* to, double value) { *to = static_cast<float>(value); }
};

struct Float64 {
  using Item = double;
  using Lane = double;
  using Vector = Doubles;
  using Mask = LongMask;
  using Count = int64_t;
  static Vector read(const Item* from) { return load<Vector>(from); }
  static void write(Item* to, double value) { *to = value; }
};

struct BFloat16 {
  using Item = uint16_t;
  using Lane = float;
  using Vector = Floats;
  using Mask = IntMask;
  using Count = int32_t;
  static Vector read(const Item* from) {
    const Words words = __builtin_convertvector(load<HalfWords>(from), Words) << 16;
    return reinterpret_cast<Floats>(words);
  }
  static void write(Item* to, double value) { *to = narrow_bfloat16(value); }
};

struct Float16 {
  using Item = uint16_t;
  using Lane = float;
  using Vector = Floats;
  using Mask = IntMask;
  using Count = int32_t;
  static Vector read(const Item* from) {  // widen_float16 of half.hpp, all lanes at once
    const Words half = __builtin_convertvector(load<HalfWords>(from), Words);
    const Words exponent_mask = Words{} + (0x7c00u << 13);
    Words bits = (half & 0x7fffu) << 13;
    const Words exponent = bits & exponent_mask;
    bits += (127u - 15u) << 23;
    bits += reinterpret_cast<Words>(exponent == exponent_mask) & ((128u - 16u) << 23);
    const Floats magic = reinterpret_cast<Floats>(Words{} + (113u << 23));
    const Words subnormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(bits + (1u << 23)) - magic);
    const Words is_subnormal = reinterpret_cast<Words>(exponent == 0u);
    bits = (is_subnormal & subnormal) | (~is_subnormal & bits);
    return reinterpret_cast<Floats>(bits | ((half & 0x8000u) << 16));
  }
  static void write(Item* to, double value) { *to = narrow_float16(value); }
};

template <class E>
constexpr int kLanes = kVector / sizeof(typename E::Lane);
template <class E>
constexpr int kTile = kTileBytes / sizeof(typename E::Lane);

// NaN becomes +infinity: the comparison is false for it. It sorts as the largest; kept ones are examined one by one.
template <class E>
inline typename E::Vector read_ordered(const typename E::Item* from) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  return lower(E::read(from), infinity);
}

// sums[0..lanes) += factor * values, in float64.
inline void add_lanes(double* sums, Floats values) {
  HalfFloats half[2];
  std::memcpy(half, &values, sizeof values);
  constexpr int lanes = kVector / 8;
  store(sums, load<Doubles>(sums) + __builtin_convertvector(half[0], Doubles));
  store(sums + lanes, load<Doubles>(sums + lanes) + __builtin_convertvector(half[1], Doubles));
}
inline void add_lanes(double* sums, Doubles values) { store(sums, load<Doubles>(sums) + values); }
inline void add_lanes(double* sums, Floats values, double factor) {
  HalfFloats half[2];
  std::memcpy(half, &values, sizeof values);
  constexpr int lanes = kVector / 8;
  store(sums, load<Doubles>(sums) + __builtin_convertvector(half[0], Doubles) * factor);
  store(sums + lanes, load<Doubles>(sums + lanes) + __builtin_convertvector(half[1], Doubles) * factor);
}
inline void add_lanes(double* sums, Doubles values, double factor) {
  store(sums, load<Doubles>(sums) + values * factor);
}

// The pieces of scratch memory, all aligned to 64 bytes.
struct Scratch {
  unsigned char* wires;
  unsigned char* staging;  // kMaxBlock rows for tails and strided clients
  double* sums;
  double* weights;
  unsigned char *low, *high, *counts;
};

inline Scratch divide(const TileJob& job) {
  constexpr int64_t row = kMaxTile * 8;
  unsigned char* at = job.scratch;
  Scratch scratch;
  scratch.staging = at;
  scratch.sums = reinterpret_cast<double*>(at + kMaxBlock * row);
  scratch.weights = scratch.sums + kMaxTile;
  scratch.low = at + (kMaxBlock + 2) * row;
  scratch.high = scratch.low + row;
  scratch.counts = scratch.high + row;  // five rows
  scratch.wires = scratch.counts + 5 * row;
  return scratch;
}

// Where `count` values of a client from `begin` on can be read as a full tile.
template <class E>
inline const typename E::Item* source(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin,
                                      int64_t count, int slot) {
  using Item = typename E::Item;
  const Item* base = static_cast<const Item*>(job.segment.pointers[client]);
  const Layout* layout = job.segment.layouts ? job.segment.layouts[client] : nullptr;
  if (!layout && count == kTile<E>) return base + begin;
  Item* to = reinterpret_cast<Item*>(scratch.staging + slot * kMaxTile * 8);
  std::memset(static_cast<void*>(to), 0, kTile<E> * sizeof(Item));
  if (layout)
    gather(base, *layout, sizeof(Item), begin, count, to);
  else
    std::memcpy(to, base + begin, static_cast<size_t>(count) * sizeof(Item));
  return to;
}

template <class E>
inline void prefetch_next(const typename E::Item* at) {
  constexpr int bytes = kTile<E> * sizeof(typename E::Item);
  const char* next = reinterpret_cast<const char*>(at) + bytes;
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(next + line);
}

template <class E, int N>
void load_sorted(const typename E::Item* const* from, typename E::Lane* to) {
  using Vector = typename E::Vector;
  using Network = SortingNetwork<N>;
  for (int i = 0; i < N; ++i) prefetch_next<E>(from[i]);
  for (int t = 0; t < kTile<E>; t += kLanes<E>) {
    Vector values[N];
    for (int i = 0; i < N; ++i) values[i] = read_ordered<E>(from[i] + t);
#pragma GCC unroll 32
    for (int c = 0; c < Network::count; ++c) exchange(values[Network::pairs[c][0]], values[Network::pairs[c][1]]);
    for (int i = 0; i < N; ++i) store(to + i * kTile<E> + t, values[i]);
  }
}

template <class E>
void load_block(const TileJob& job, const Scratch& scratch, const Step& step, int64_t begin, int64_t count) {
  using Loader = void (*)(const typename E::Item* const*, typename E::Lane*);
  static constexpr Loader loaders[] = {load_sorted<E, 1>, load_sorted<E, 2>, load_sorted<E, 3>, load_sorted<E, 4>,
                                       load_sorted<E, 5>, load_sorted<E, 6>, load_sorted<E, 7>, load_sorted<E, 8>};
  const typename E::Item* from[kMaxBlock];
  for (uint32_t i = 0; i < step.count; ++i)
    from[i] = source<E>(job, scratch, step.begin + i, begin, count, static_cast<int>(i));
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

template <class E>
void add_kept(const typename E::Lane* wires, const uint32_t* kept, uint32_t count, double* sums) {
  using Vector = typename E::Vector;
  for (uint32_t w = 0; w < count; ++w) {
    const typename E::Lane* from = wires + kept[w] * kTile<E>;
    for (int t = 0; t < kTile<E>; t += kLanes<E>) add_lanes(sums + t, load<Vector>(from + t));
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
      store(low + t, lower(value, load<Vector>(low + t)));
      store(high + t, upper(load<Vector>(high + t), value));
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
    const auto* from = source<E>(job, scratch, client, begin, count, 0);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {  // a true lane is -1
      const Vector value = read_ordered<E>(from + t), bottom = load<Vector>(low + t), top = load<Vector>(high + t);
      store(below + t, load<Mask>(below + t) - reinterpret_cast<Mask>(value < bottom));
      store(above + t, load<Mask>(above + t) - reinterpret_cast<Mask>(value > top));
      store(at_high + t, load<Mask>(at_high + t) - reinterpret_cast<Mask>(value == top));
    }
  }
  const Mask trim = Mask{} + static_cast<Count>(job.trim);
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, 0);
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

template <class E, bool Weighted>
void sum_all(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  for (int64_t client = 0; client < job.clients; ++client) {
    const auto* from = source<E>(job, scratch, client, begin, count, 0);
    prefetch_next<E>(from);
    for (int t = 0; t < kTile<E>; t += kLanes<E>) {
      if constexpr (Weighted)
        add_lanes(scratch.sums + t, E::read(from + t), job.weights[client]);
      else
        add_lanes(scratch.sums + t, E::read(from + t));
    }
  }
}

// Divides, has unusual coordinates examined, rounds once and writes.
template <class E>
void finish(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count) {
  double* sums = scratch.sums;
  constexpr int lanes = kVector / 8;
  LongMask finite = ~LongMask{};
  for (int t = 0; t < kTile<E>; t += lanes) {
    Doubles divisor = Doubles{} + job.divisor;
    if (job.divisor == 0) divisor = load<Doubles>(scratch.weights + t);
    const Doubles value = load<Doubles>(sums + t) / divisor;
    store(sums + t, value);
    finite &= (value - value) == Doubles{};
  }
  bool all_finite = true;
  for (int lane = 0; lane < lanes; ++lane) all_finite &= finite[lane] != 0;
  if (!all_finite) {
    for (int64_t t = 0; t < count; ++t)
      if (!(sums[t] - sums[t] == 0)) sums[t] = job.examine(job.context, job, begin + t);
  }
  if (job.wide_output) {
    std::memcpy(static_cast<double*>(job.segment.out) + begin, sums, static_cast<size_t>(count) * 8);
    return;
  }
  auto* out = static_cast<typename E::Item*>(job.segment.out) + begin;
  if (count == kTile<E>) {
    for (int t = 0; t < kTile<E>; ++t) E::write(out + t, sums[t]);
  } else {
    for (int64_t t = 0; t < count; ++t) E::write(out + t, sums[t]);
  }
}

template <class E>
void reduce(const TileJob& job, int64_t begin, int64_t end) {
  const Scratch scratch = divide(job);
  for (int64_t at = begin; at < end; at += kTile<E>) {
    const int64_t count = end - at < kTile<E> ? end - at : kTile<E>;
    std::memset(scratch.sums, 0, 2 * kMaxTile * sizeof(double));
    if (job.trim == 0) {
      if (job.weights)
        sum_all<E, true>(job, scratch, at, count);
      else
        sum_all<E, false>(job, scratch, at, count);
    } else if (job.weights) {
      sum_weighted_trimmed<E>(job, scratch, at, count);
    } else {
      sum_trimmed<E>(job, scratch, at, count);
    }
    finish<E>(job, scratch, at, count);
  }
}

inline double widen_one(float value) { return value; }
inline double widen_one(double value) { return value; }

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

void plain_mean(const void* const* pointers, int64_t clients, int64_t begin, int64_t end, float* out) {
  constexpr int lanes = kVector / 4, vectors = 8, block = lanes * vectors;
  const float scale = 1.0f / static_cast<float>(clients);
  int64_t at = begin;
  for (; at + block <= end; at += block) {
    Floats sums[vectors] = {};
    for (int64_t client = 0; client < clients; ++client) {
      const float* from = static_cast<const float*>(pointers[client]) + at;
      for (int line = 0; line < block; line += 16) __builtin_prefetch(from + block + line);
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
