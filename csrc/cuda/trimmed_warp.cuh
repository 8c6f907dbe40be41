// Trimmed mean of up to 32 G clients when many are trimmed: a block loads 32 coordinates of all clients, coalesced, and
// turns them round through shared memory so that each warp has all keys of one coordinate in registers. Two order
// statistics are found by bisection on keys.
#pragma once

#include "sums.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kWarp = 32;
constexpr int kWarpThreads = kWarp * kWarp;
constexpr unsigned kAllLanes = 0xffffffffu;

// Rows are one key longer than a warp: a column then touches 32 different banks. Two tiles, used in turn, save every
// second barrier.
template <class E>
constexpr int64_t warp_shared() {
  return 2 * kWarp * (kWarp + 1) * static_cast<int64_t>(sizeof(typename E::Key));
}

template <class T, class Combine>
__device__ __forceinline__ T combine_lanes(T value, Combine combine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

struct Least {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Greatest {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Total {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <class Key, int G>
__device__ __forceinline__ int32_t count_up_to(const Key (&keys)[G], Key limit) {
  int32_t count = 0;
#pragma unroll
  for (int g = 0; g < G; ++g) count += keys[g] <= limit;
  return combine_lanes(count, Total{});
}

// The key with `rank` keys before it, between `low` and `high`. Lanes agree on every step, so shuffles meet.
template <class Key, int G>
__device__ __forceinline__ Key select(const Key (&keys)[G], int32_t rank, Key low, Key high) {
  while (low < high) {
    const Key middle = low + (high - low) / 2;
    const int32_t count = count_up_to(keys, middle);
    if (count == rank) {  // exactly the keys before it: it is the next one
      Key next = high;
#pragma unroll
      for (int g = 0; g < G; ++g)
        if (keys[g] > middle && keys[g] < next) next = keys[g];
      return combine_lanes(next, Least{});
    }
    if (count > rank)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Strictly between the bounds every value counts once; values equal to a bound as often as they are kept.
template <class S, class Key, int G>
__device__ __forceinline__ double sum_between(const Key (&keys)[G], Key low, Key high, int32_t clients, int32_t trim,
                                              typename S::Value scale) {
  const auto scaled = [&](Key key) { return static_cast<double>(value_of(key) * scale); };
  if (low == high) return 0 + static_cast<double>(clients - 2 * trim) * scaled(low);  // 0 + -0 is 0, as elsewhere
  typename S::Sum own;
#pragma unroll
  for (int g = 0; g < G; ++g)
    if (keys[g] > low && keys[g] < high) own.add(value_of(keys[g]) * scale);
  const double sum = combine_lanes(own.total(), Total{});
  const int32_t kept_low = count_up_to(keys, low) - trim;
  const int32_t kept_high = clients - trim - count_up_to(keys, high - 1);
  return sum + static_cast<double>(kept_low) * scaled(low) + static_cast<double>(kept_high) * scaled(high);
}

// keys[g] of lane l in warp w: before, coordinate l of client 32 g + w; after, coordinate w of client 32 g + l.
template <class Key, int G>
__device__ __forceinline__ void turn_round(Key (&keys)[G], int32_t clients) {
  Key* tiles = reinterpret_cast<Key*>(shared_memory());
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (g * kWarp >= clients) break;
    Key* tile = tiles + (g % 2) * kWarp * (kWarp + 1);
    tile[warp * (kWarp + 1) + lane] = keys[g];
    __syncthreads();
    keys[g] = tile[lane * (kWarp + 1) + warp];
  }
}

template <class E, int G>
__global__ void __launch_bounds__(kWarpThreads, 1) trimmed_warp(const Job job) {
  using Key = typename E::Key;
  using S = Sums<E>;
  constexpr Key padding = static_cast<Key>(~Key{0});  // above the key of +infinity
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = job.begin + static_cast<int64_t>(blockIdx.x) * kWarp;
  const Place loaded = place_at(job, first, lane);
  const int32_t clients = loaded.inside ? job.clients : 0;
  Key keys[G];
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const int32_t client = g * kWarp + warp;
    keys[g] = padding;
    if (client < clients) keys[g] = key_of(ordered(read<E>(loaded, client)));
  }
  turn_round(keys, job.clients);
  if (!place_at(job, first, warp).inside) return;

  Key least = padding, greatest = 0;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (keys[g] < least) least = keys[g];
    if (keys[g] != padding && keys[g] > greatest) greatest = keys[g];
  }
  least = combine_lanes(least, Least{});
  greatest = combine_lanes(greatest, Greatest{});
  const Key low = select(keys, job.trim, least, greatest);
  const Key high = select(keys, job.clients - 1 - job.trim, low, greatest);
  const auto place_again = [&] {
    return place_at(job, job.begin + static_cast<int64_t>(block_again()) * kWarp, threadIdx.x / kWarp);
  };
  if (job.low) {
    if (lane == 0) {
      const int64_t index = place_again().index - job.begin;
      static_cast<typename E::Lane*>(job.low)[index] = value_of(low);
      static_cast<typename E::Lane*>(job.high)[index] = value_of(high);
    }
    return;
  }
  const auto sum_of = [&](typename S::Value scale, double&) {
    return sum_between<S>(keys, low, high, job.clients, job.trim, scale);
  };
  const double mean = mean_of<E, S, false>(job, sum_of);
  if (lane == 0) finish<E>(job, place_again(), mean);
}

}  // namespace cuda
}  // namespace fedincentive
