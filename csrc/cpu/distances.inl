// Squared distances between clients, in float32 or float64, and widening for them. Included by kernels.inl inside its
// namespace.

// Any dtype but float64 to float32.
void widen_singles(Dtype dtype, const void* from, float* to, int64_t count) {
  if (dtype == Dtype::float32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return;
  }
  constexpr int64_t lanes = kVector / 4;
  const auto* halves = static_cast<const uint16_t*>(from);
  const int64_t whole = count / lanes * lanes;
  widen_halves(dtype, halves, to, whole);
  for (int64_t i = whole; i < count; ++i)
    to[i] = dtype == Dtype::float16 ? widen_float16(halves[i]) : widen_bfloat16(halves[i]);
}

// Any dtype to float64.
void widen(Dtype dtype, const void* from, double* to, int64_t count) {
  if (dtype == Dtype::float64) {
    std::memcpy(to, from, static_cast<size_t>(count) * 8);
  } else if (dtype == Dtype::float32) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<const float*>(from)[i];
  } else {
    constexpr int64_t together = 64;
    float floats[together];
    for (int64_t i = 0; i < count; i += together) {
      const int64_t number = count - i < together ? count - i : together;
      widen_singles(dtype, static_cast<const uint16_t*>(from) + i, floats, number);
      for (int64_t t = 0; t < number; ++t) to[i + t] = floats[t];
    }
  }
}

// sum + value * value; in float32 rounded once, on every machine.
FEDINCENTIVE_INLINE Doubles add_square(Doubles sum, Doubles value) { return sum + value * value; }
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
FEDINCENTIVE_INLINE Floats add_square(Floats sum, Floats value) { return _mm512_fmadd_ps(value, value, sum); }
#elif defined(__FMA__) && FEDINCENTIVE_VECTOR_BYTES == 32
FEDINCENTIVE_INLINE Floats add_square(Floats sum, Floats value) { return _mm256_fmadd_ps(value, value, sum); }
#elif defined(__FP_FAST_FMAF)
inline Floats add_square(Floats sum, Floats value) {
  for (int lane = 0; lane < kVector / 4; ++lane) sum[lane] = __builtin_fmaf(value[lane], value[lane], sum[lane]);
  return sum;
}
#else
// Without an instruction for it: the square is exact in float64, and where the sum there is not, its neighbour with an
// odd last bit takes its place, which is rounded to float32 as the exact sum would be. Neither is ever negative.
inline Floats add_square(Floats sum, Floats value) {
  typedef double Wide __attribute__((vector_size(2 * kVector)));
  typedef int64_t Bits __attribute__((vector_size(2 * kVector)));
  const Wide wide = __builtin_convertvector(value, Wide), before = __builtin_convertvector(sum, Wide);
  const Wide square = wide * wide, total = before + square;
  const Wide added = total - before, rest = (before - (total - added)) + (square - added);
  const Bits below = rest < 0, above = rest > 0;  // -1 where that is so
  const Bits odd = (reinterpret_cast<Bits>(total) + below) | ((below | above) & 1);
  return __builtin_convertvector(reinterpret_cast<Wide>(odd), Floats);
}
#endif

// How many running sums each pair has, by position modulo that whatever the vector width: they are added up in one
// order at the end.
template <class V>
constexpr int kSums = sizeof(V{}[0]) == 4 ? 16 : 8;

inline double sum_of(const double* parts) {
  return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}
inline double sum_of(const float* parts) {  // the upper half to the lower one, until one is left
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  Eight eight[2];
  std::memcpy(eight, parts, sizeof eight);
  eight[0] += eight[1];
  Four four[2];
  std::memcpy(four, eight, sizeof four);
  four[0] += four[1];
  return (four[0][0] + four[0][2]) + (four[0][1] + four[0][3]);
}

// A value that is loaded once is compared several times, as often as registers allow.
template <class V, int Ones, int Others, class Lane>
FEDINCENTIVE_INLINE void distances_between(const Lane* ones, const Lane* others, int64_t stride, int64_t length,
                                           double* out, int64_t out_stride) {
  constexpr int lanes = sizeof(V) / sizeof(Lane), sums = kSums<V>;
  Lane parts[Ones][Others][sums];
  for (int part = 0; part < sums; part += lanes) {
    V totals[Ones][Others] = {};
    for (int64_t t = part; t < length; t += sums) {  // rows are padded with zeros to a whole number of them
      V own[Ones];
#pragma GCC unroll 4
      for (int i = 0; i < Ones; ++i) own[i] = load<V>(ones + i * stride + t);
#pragma GCC unroll 4
      for (int j = 0; j < Others; ++j) {
        const V other = load<V>(others + j * stride + t);
#pragma GCC unroll 4
        for (int i = 0; i < Ones; ++i) totals[i][j] = add_square(totals[i][j], own[i] - other);
      }
    }
    for (int i = 0; i < Ones; ++i)
      for (int j = 0; j < Others; ++j) store(parts[i][j] + part, totals[i][j]);
  }
  for (int i = 0; i < Ones; ++i)
    for (int j = 0; j < Others; ++j) out[i * out_stride + j] = sum_of(parts[i][j]);
}

template <class V, int Ones, class Lane>
void distances_of(const Lane* ones, const Lane* others, int64_t stride, int64_t count, int64_t length, double* out) {
  constexpr int together = kVector == 64 ? 4 : 2;
  int64_t j = 0;
  for (; j + together <= count; j += together)
    distances_between<V, Ones, together>(ones, others + j * stride, stride, length, out + j, count);
  for (; j < count; ++j) distances_between<V, Ones, 1>(ones, others + j * stride, stride, length, out + j, count);
}

template <class V, class Lane>
void all_distances(const Lane* ones, int64_t number, const Lane* others, int64_t count, int64_t stride, int64_t length,
                   double* out) {
  constexpr int abreast = 4;
  int64_t i = 0;
  for (; i + abreast <= number; i += abreast)
    distances_of<V, abreast>(ones + i * stride, others, stride, count, length, out + i * count);
  for (; i < number; ++i) distances_of<V, 1>(ones + i * stride, others, stride, count, length, out + i * count);
}

void squared_distances(const double* ones, int64_t number, const double* others, int64_t count, int64_t stride,
                       int64_t length, double* out) {
  all_distances<Doubles>(ones, number, others, count, stride, length, out);
}

void squared_distances_singles(const float* ones, int64_t number, const float* others, int64_t count, int64_t stride,
                               int64_t length, double* out) {
  all_distances<Floats>(ones, number, others, count, stride, length, out);
}
