// Whether values are all finite. Included by kernels.inl inside its namespace.

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
