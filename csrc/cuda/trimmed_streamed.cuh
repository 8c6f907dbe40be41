// Any number of clients, any trim: values stay in global memory and are read again for every step. First the smallest
// and largest kept value by a four-way search on keys, then the mean of the kept, clients in their order.
#pragma once

#include "sums.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kStreamedThreads = 128;
constexpr int kPivots = 3;

// Where the key with `rank` keys before it can still be: low <= key <= high.
template <class Key>
struct Bracket {
  Key low, high;
  int32_t rank;
  int32_t counts[kPivots];

  __device__ __forceinline__ bool open() const { return low < high; }
  __device__ __forceinline__ Key pivot(int i) const {
    const Key quarter = (high - low) / 4, half = (high - low) / 2;
    return low + (i == 0 ? quarter : i == 1 ? half : half + quarter);
  }
  __device__ __forceinline__ void narrow() {
    Key bottom = low, top = high;
#pragma unroll
    for (int i = kPivots - 1; i >= 0; --i)
      if (counts[i] > rank) top = pivot(i);
#pragma unroll
    for (int i = 0; i < kPivots; ++i)
      if (counts[i] <= rank) bottom = pivot(i) + 1;
    low = bottom;
    high = top;
  }
};

template <class E>
__global__ void __launch_bounds__(kStreamedThreads) kept_bounds(const Job job) {
  using Key = typename E::Key;
  const Place place = place_of_thread(job);
  if (!place.inside) return;
  Key least = static_cast<Key>(~Key{0}), greatest = 0;
#pragma unroll 4
  for (int32_t client = 0; client < job.clients; ++client) {
    const Key key = key_of(ordered(read<E>(place, client)));
    least = key < least ? key : least;
    greatest = key > greatest ? key : greatest;
  }
  Bracket<Key> lower{least, greatest, job.trim, {}};
  Bracket<Key> upper{least, greatest, job.clients - 1 - job.trim, {}};
  while (lower.open() || upper.open()) {
    Key lower_pivots[kPivots], upper_pivots[kPivots];
#pragma unroll
    for (int i = 0; i < kPivots; ++i) {
      lower_pivots[i] = lower.pivot(i);
      upper_pivots[i] = upper.pivot(i);
      lower.counts[i] = upper.counts[i] = 0;
    }
#pragma unroll 4
    for (int32_t client = 0; client < job.clients; ++client) {
      const Key key = key_of(ordered(read<E>(place, client)));
#pragma unroll
      for (int i = 0; i < kPivots; ++i) {
        lower.counts[i] += key <= lower_pivots[i];
        upper.counts[i] += key <= upper_pivots[i];
      }
    }
    if (lower.open()) lower.narrow();
    if (upper.open()) upper.narrow();
  }
  static_cast<typename E::Lane*>(job.low)[place.index - job.begin] = value_of(lower.low);
  static_cast<typename E::Lane*>(job.high)[place.index - job.begin] = value_of(upper.low);
}

template <class E, class S, bool Weighted>
__global__ void __launch_bounds__(kStreamedThreads) kept_mean(const Job job) {
  using Lane = typename E::Lane;
  const Place place = place_of_thread(job);
  if (!place.inside) return;
  const Lane low = static_cast<const Lane*>(job.low)[place.index - job.begin];
  const Lane high = static_cast<const Lane*>(job.high)[place.index - job.begin];
  int32_t below = 0, above = 0, at_high = 0;
#pragma unroll 4
  for (int32_t client = 0; client < job.clients; ++client) {
    const Lane value = ordered(read<E>(place, client));
    below += value < low;
    above += value > high;
    at_high += value == high;
  }
  const auto sum_of = [&](typename S::Value scale, double& kept_weight) {
    KeptRule<Lane> rule(low, high, job.trim, below, above, at_high);
    typename S::Sum sum, kept;
#pragma unroll 4
    for (int32_t client = 0; client < job.clients; ++client) {
      const Lane value = ordered(read<E>(place, client));
      if (!rule.keeps(value)) continue;
      if constexpr (Weighted) {
        const auto weight = weight_of<S>(job, client);
        sum.add(value * scale, weight);
        kept.add_weight(weight);
      } else {
        sum.add(value * scale);
      }
    }
    kept_weight = kept.total();
    return sum.total();
  };
  finish<E>(job, place, mean_of<E, S, Weighted>(job, sum_of));
}

}  // namespace cuda
}  // namespace fedincentive
