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

// clang-format off: the order matters
#include "vectors.inl"
#include "scratch.inl"
#include "reading.inl"
#include "kept.inl"
#include "planned.inl"
#include "stream.inl"
#include "weighted.inl"
#include "means.inl"
#include "finish.inl"
#include "distances.inl"
#include "finite.inl"
// clang-format on

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

// Which sums a job asks for.
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

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FEDINCENTIVE_ISA_NAME, reduce<Singles>, reduce<Wides>, widen,
                         squared_distances,     plain_mean,      all_finite};

}  // namespace FEDINCENTIVE_ISA
}  // namespace fedincentive
