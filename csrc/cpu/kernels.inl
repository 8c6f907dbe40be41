// The tile kernels, compiled once per instruction set. Before including this file a unit defines FEDINCENTIVE_ISA (its
// namespace), FEDINCENTIVE_ISA_NAME and FEDINCENTIVE_VECTOR_BYTES. Neither this file nor those it includes may use
// inline functions or templates with external linkage: the linker would keep one copy, perhaps the one the running CPU
// cannot execute.
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
#include "middles.inl"
#include "cuts.inl"
#include "weighted.inl"
#include "means.inl"
#include "finite.inl"
#include "examine.inl"
#include "shares.inl"
#include "finish.inl"
#include "distances.inl"
// clang-format on

// Tile after tile.
template <class E>
void walk(const TileJob& job, int64_t begin, int64_t end, int64_t full, SumTile sum) {
  int wary = 0;
  const Scratch scratch = divide(job, &wary);
  for (int64_t at = begin; at < end; at += full) {
    const int64_t count = end - at < full ? end - at : full;
    sum(job, scratch, at, count);
    finish<E>(job, scratch, at, count, full == kSpan ? padded(count) : full);
    if (job.unusual->patience > 0 || at + count == end) continue;
    job.unusual->stopped = true;
    return;
  }
}

// Which sums a job asks for.
template <class E>
void reduce(const TileJob& job, int64_t begin, int64_t end) {
  if (job.share > 0) {
    walk<E>(job, begin, end, kTile<E>, sum_shares<E>);
  } else if (job.trim == 0) {
    walk<E>(job, begin, end, kSpan, job.weights ? sum_all<E, true> : sum_all<E, false>);
  } else if (job.weights) {
    walk<E>(job, begin, end, kTile<E>, sum_weighted_trimmed<E>);
  } else if (const SumTile middle = middle_sum<E>(job.clients, job.trim)) {
    walk<E>(job, begin, end, kTile<E>, middle);
  } else if (cut_by_search(job.clients, job.trim)) {
    walk<E>(job, begin, end, kTile<E>, sum_cut<E>);
  } else if (const SumTile streamed = streamed_sum<E>(job.clients, job.trim)) {
    walk<E>(job, begin, end, kTile<E>, streamed);
  } else {
    walk<E>(job, begin, end, kTile<E>, sum_planned<E>);
  }
}

}  // namespace

extern const Kernels kernels;
const Kernels kernels = {FEDINCENTIVE_ISA_NAME, reduce<Singles>,           reduce<Wides>, widen, widen_singles,
                         squared_distances,     squared_distances_singles, all_finite};

}  // namespace FEDINCENTIVE_ISA
}  // namespace fedincentive
