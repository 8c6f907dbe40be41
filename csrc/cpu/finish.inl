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

// Doubles as floats that a second rounding takes to what one rounding would: what is cut off stays visible in the last
// bit (round_to_odd of half.hpp), wherever floats are normal numbers or halves are 0.
FEDINCENTIVE_INLINE Floats cut_to_floats(Doubles a, Doubles b) {
  constexpr int64_t last = int64_t{1} << 29;
  const auto cut = [](Doubles value) {
    const LongMask bits = reinterpret_cast<LongMask>(value);
    const LongMask lost = reinterpret_cast<LongMask>((bits & (last - 1)) != 0);
    return to_floats(reinterpret_cast<Doubles>((bits & ~(last - 1)) | (lost & last)));
  };
  const HalfFloats parts[2] = {cut(a), cut(b)};
  Floats all;
  std::memcpy(&all, parts, sizeof all);
  return all;
}

// To the nearest half, ties to the even one; not for NaN.
FEDINCENTIVE_INLINE Words rounded_bfloat16s(Floats cut) {
  const Words bits = reinterpret_cast<Words>(cut);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
constexpr bool kNarrows = true;
FEDINCENTIVE_INLINE void store_float16s(uint16_t* to, Floats cut) { store(to, _mm512_cvtps_ph(cut, 0)); }
FEDINCENTIVE_INLINE void store_bfloat16s(uint16_t* to, Floats cut) {
  store(to, _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(rounded_bfloat16s(cut))));
}
#else
FEDINCENTIVE_INLINE void store_bfloat16s(uint16_t* to, Floats cut) {
  store(to, __builtin_convertvector(rounded_bfloat16s(cut), HalfWords));
}
#if defined(__F16C__) && FEDINCENTIVE_VECTOR_BYTES == 32
constexpr bool kNarrows = true;
FEDINCENTIVE_INLINE void store_float16s(uint16_t* to, Floats cut) { store(to, _mm256_cvtps_ph(cut, 0)); }
#else
constexpr bool kNarrows = false;
FEDINCENTIVE_INLINE void store_float16s(uint16_t*, Floats) {}
#endif
#endif

// Results, which are sums times `factor`, as halves, rounded once; NaN, and what bfloat16 has below its normal numbers,
// one by one. Returns whether all of them are finite.
inline bool write_halves(Dtype dtype, uint16_t* to, const double* sums, double factor, int64_t count) {
  constexpr int lanes = kVector / 8;
  const bool brain = dtype == Dtype::bfloat16;
  LongMask finite = ~LongMask{};
  bool all_finite = true;
  int64_t t = 0;
  while (t < count) {
    if ((brain || kNarrows) && t + 2 * lanes <= count) {
      const Doubles a = load<Doubles>(sums + t) * factor, b = load<Doubles>(sums + t + lanes) * factor;
      const auto usual = [&](Doubles value) {
        const Doubles size = larger(value, -value), least = Doubles{} + 0x1p-126;
        const auto normal = reinterpret_cast<LongMask>(size >= least) | reinterpret_cast<LongMask>(size == Doubles{});
        return brain ? normal : reinterpret_cast<LongMask>(value == value);
      };
      if (all_true(usual(a) & usual(b))) {
        finite &= ~(not_numbers(a) | not_numbers(b));
        const Floats cut = cut_to_floats(a, b);
        if (brain)
          store_bfloat16s(to + t, cut);
        else
          store_float16s(to + t, cut);
        t += 2 * lanes;
        continue;
      }
    }
    const int64_t end = t + 2 * lanes < count ? t + 2 * lanes : count;
    for (; t < end; ++t) {
      const double value = sums[t] * factor;
      all_finite &= value - value == 0;
      to[t] = brain ? narrow_bfloat16(value) : narrow_float16(value);
    }
  }
  return all_finite && all_true(finite);
}

// Divides, has unusual coordinates examined, rounds once and writes.
template <class E>
void finish(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count, int64_t full) {
  double* sums = scratch.sums;
  const bool singles = job.dtype == Dtype::float32 && !job.wide_output;
  float* out = static_cast<float*>(job.segment.out) + begin;
  if (singles && job.divisor != 0 && write_means(out, sums, job.divisor, count)) return;
  const bool halves = item_size(job.dtype) == 2 && !job.wide_output;
  uint16_t* short_out = static_cast<uint16_t*>(job.segment.out) + begin;
  if (halves && job.divisor != 0 && write_halves(job.dtype, short_out, sums, 1 / job.divisor, count)) return;
  divide_sums<E>(sums, scratch.weights, job.divisor, full);
  LongMask finite = ~LongMask{};
  for (int64_t t = count; t < full; ++t) sums[t] = 0;
  for (int64_t t = 0; t < full; t += kVector / 8) {
    const Doubles value = load<Doubles>(sums + t);
    finite &= (value - value) == Doubles{};
  }
  if (!all_true(finite)) {
    const auto examine = job.share > 0 ? examine_shares<E> : job.trim == 0 ? examine_means<E> : examine_trimmed<E>;
    const int64_t known = job.unusual->not_finite + job.unusual->weightless;
    examine(job, scratch, begin, count, sums);
    if (job.unusual->not_finite + job.unusual->weightless > known) job.unusual->patience -= count;
  }
  if (singles) {
    for (int64_t t = 0; t < count; ++t) out[t] = static_cast<float>(sums[t]);
  } else if (job.wide_output || job.dtype == Dtype::float64) {
    std::memcpy(static_cast<double*>(job.segment.out) + begin, sums, static_cast<size_t>(count) * 8);
  } else {
    write_halves(job.dtype, short_out, sums, 1, count);
  }
}
