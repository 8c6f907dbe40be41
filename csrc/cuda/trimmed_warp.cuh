// Trimmed mean of up to 32 G clients when many are trimmed: a block loads 32 coordinates of all clients, coalesced, and
// turns them round through shared memory so that each warp has all keys of one coordinate in registers. Two order
// statistics are found by bisection on keys.
#pragma once

#include "device.cuh"

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
template <class Key, int G>
__device__ __forceinline__ double sum_between(const Key (&keys)[G], Key low, Key high, int32_t clients, int32_t trim) {
  double sum = 0;  // and -0 added to it is 0, as in the other kernels
  if (low == high) return sum + static_cast<double>(clients - 2 * trim) * static_cast<double>(value_of(low));
#pragma unroll
  for (int g = 0; g < G; ++g)
    if (keys[g] > low && keys[g] < high) sum += static_cast<double>(value_of(keys[g]));
  sum = combine_lanes(sum, Total{});
  const int32_t kept_low = count_up_to(keys, low) - trim;
  const int32_t kept_high = clients - trim - count_up_to(keys, high - 1);
  return sum + static_cast<double>(kept_low) * static_cast<double>(value_of(low)) +
         static_cast<double>(kept_high) * static_cast<double>(value_of(high));
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
  constexpr Key padding = static_cast<Key>(~Key{0});  // above the key of +infinity
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarp;
  Key keys[G];
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const int32_t client = g * kWarp + warp;
    keys[g] = padding;
    if (client < job.clients && first + lane < job.size) keys[g] = key_of(ordered(read<E>(job, client, first + lane)));
  }
  turn_round(keys, job.clients);
  const int64_t coordinate = first + warp;
  if (coordinate >= job.size) return;

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
  if (job.low) {
    if (lane == 0) {
      static_cast<typename E::Lane*>(job.low)[coordinate] = value_of(low);
      static_cast<typename E::Lane*>(job.high)[coordinate] = value_of(high);
    }
    return;
  }
  const double sum = sum_between(keys, low, high, job.clients, job.trim);
  if (lane == 0) finish<E>(job, coordinate, divided<E>(job, sum));
}

}  // namespace cuda
}  // namespace fedincentive
