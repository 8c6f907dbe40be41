// Sums become results: divided, examined where they are not finite, rounded and written. Included by kernels.inl inside
// its namespace.

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
  LongMask finite = ~LongMask{};
  for (int64_t t = count; t < full; ++t) sums[t] = 0;
  for (int64_t t = 0; t < full; t += kVector / 8) {
    const Doubles value = load<Doubles>(sums + t);
    finite &= (value - value) == Doubles{};
  }
  if (!all_true(finite)) {
    const auto examine = job.share > 0 ? examine_shares<E> : job.trim == 0 ? examine_means<E> : examine_trimmed<E>;
    examine(job, scratch, begin, count, sums);
  }
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
