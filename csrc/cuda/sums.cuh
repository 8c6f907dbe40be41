// How values and weights are added up. Consumer and workstation GPUs do float64 at 1/64 of float32's rate, which would
// bind before memory does: sums of float32 are pairs of float32 instead, with about 48 bits (two-sum: Knuth, 1969; the
// compensated sum of Ogita, Rump and Oishi, 2005). Float64 updates, wide results and weights that differ by more than
// 2^36 are added up in float64.
#pragma once

#include "device.cuh"

namespace fedincentive {
namespace cuda {

struct PairSum {
  float high = 0, low = 0;

  __device__ __forceinline__ void add(float value) {
    const float sum = high + value, part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  __device__ __forceinline__ void add(float value, float2 weight) {
    const float product = value * weight.x;
    const float rest = fmaf(value, weight.x, -product) + value * weight.y;
    add(product);
    low += rest;
  }
  __device__ __forceinline__ void add_weight(float2 weight) {
    add(weight.x);
    low += weight.y;
  }
  __device__ __forceinline__ double total() const { return static_cast<double>(high) + static_cast<double>(low); }
};

struct DoubleSum {
  double sum = 0;

  __device__ __forceinline__ void add(double value) { sum += value; }
  __device__ __forceinline__ void add(double value, double weight) { sum += value * weight; }
  __device__ __forceinline__ void add_weight(double weight) { sum += weight; }
  __device__ __forceinline__ double total() const { return sum; }
};

// Weights of Pairs are multiplied by a power of two (see reduce.cu), so that products of tiny values keep their bits.
struct Pairs {
  using Sum = PairSum;
  using Value = float;
  using Weight = float2;
};
struct Doubles {
  using Sum = DoubleSum;
  using Value = double;
  using Weight = double;
};

template <class Lane>
struct SumsFor;
template <>
struct SumsFor<float> {
  using Type = Pairs;
};
template <>
struct SumsFor<double> {
  using Type = Doubles;
};
template <class E>
using Sums = typename SumsFor<typename E::Lane>::Type;

template <class S>
__device__ __forceinline__ typename S::Weight weight_of(const Job& job, int32_t client) {
  return __ldg(static_cast<const typename S::Weight*>(job.weights) + client);
}

__device__ __forceinline__ double whole(double weight) { return weight; }
__device__ __forceinline__ double whole(float2 weight) {
  return static_cast<double>(weight.x) + static_cast<double>(weight.y);
}

// The mean of what `sum_of(scale, kept_weight)` adds up, which are the kept values times scale: with scale 1, and where
// that overflows once more with job.shrink. What is not finite then keeps a value that is not, or has no weight.
template <class E, class S, bool Weighted, class SumOf>
__device__ __forceinline__ double mean_of(const Job& job, SumOf sum_of) {
  typename S::Value scale = 1;
  double sum = 0, kept_weight = 0;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    sum = sum_of(scale, kept_weight);
    if (finite(sum)) break;
    scale = static_cast<typename S::Value>(job.shrink);
  }
  const double mean = Weighted ? divided<E>(job, sum, kept_weight) : divided<E>(job, sum);
  return scale == 1 ? mean : mean * job.grow;
}

}  // namespace cuda
}  // namespace fedincentive
