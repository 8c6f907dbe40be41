// Vectors of one instruction set: types, loads, comparators, conversions. Included by kernels.inl inside its namespace.
//
// GCC's vector extensions carry most of it. Where GCC 12 misses the instruction (min, max, float to double, 16 to 32
// bits) the x86 intrinsic is named; the plain expression beside it has the same meaning bit for bit.

// What runs once per vector must be part of its loop: a call costs as much as the work.
#define FEDINCENTIVE_INLINE inline __attribute__((always_inline))

constexpr int kVector = FEDINCENTIVE_VECTOR_BYTES;

typedef float Floats __attribute__((vector_size(kVector)));
typedef float HalfFloats __attribute__((vector_size(kVector / 2)));
typedef double Doubles __attribute__((vector_size(kVector)));
typedef uint32_t Words __attribute__((vector_size(kVector)));
typedef uint16_t HalfWords __attribute__((vector_size(kVector / 2)));
typedef int32_t IntMask __attribute__((vector_size(kVector)));
typedef int64_t LongMask __attribute__((vector_size(kVector)));

#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
#define FEDINCENTIVE_INTRINSIC(name128, name256, name512, plain) name512
#elif defined(__AVX2__) && FEDINCENTIVE_VECTOR_BYTES == 32
#define FEDINCENTIVE_INTRINSIC(name128, name256, name512, plain) name256
#elif defined(__AVX2__) && FEDINCENTIVE_VECTOR_BYTES == 64  // tests run the 64-byte unit's logic on CPUs with AVX2
#define FEDINCENTIVE_INTRINSIC(name128, name256, name512, plain) \
  in_halves<decltype(a)>(a, b, [](auto a, auto b) { return name256; })
#elif defined(__x86_64__) && FEDINCENTIVE_VECTOR_BYTES == 16
#define FEDINCENTIVE_INTRINSIC(name128, name256, name512, plain) name128
#else
#define FEDINCENTIVE_INTRINSIC(name128, name256, name512, plain) plain
#endif

template <class V, class T>
FEDINCENTIVE_INLINE V load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}

template <class V, class T>
FEDINCENTIVE_INLINE void store(T* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

template <class V, class Operation>
FEDINCENTIVE_INLINE V in_halves(V a, V b, Operation operation) {
  typedef std::remove_reference_t<decltype(V{}[0])> Half __attribute__((vector_size(sizeof(V) / 2)));
  Half x[2], y[2];
  std::memcpy(x, &a, sizeof a);
  std::memcpy(y, &b, sizeof b);
  for (int i = 0; i < 2; ++i) x[i] = operation(x[i], y[i]);
  std::memcpy(&a, x, sizeof a);
  return a;
}

// a < b ? a : b and a > b ? a : b: where one is NaN or both are zero, b.
FEDINCENTIVE_INLINE Floats smaller(Floats a, Floats b) {
  return FEDINCENTIVE_INTRINSIC(_mm_min_ps(a, b), _mm256_min_ps(a, b), _mm512_min_ps(a, b), a < b ? a : b);
}
FEDINCENTIVE_INLINE Floats larger(Floats a, Floats b) {
  return FEDINCENTIVE_INTRINSIC(_mm_max_ps(a, b), _mm256_max_ps(a, b), _mm512_max_ps(a, b), a > b ? a : b);
}
FEDINCENTIVE_INLINE Doubles smaller(Doubles a, Doubles b) {
  return FEDINCENTIVE_INTRINSIC(_mm_min_pd(a, b), _mm256_min_pd(a, b), _mm512_min_pd(a, b), a < b ? a : b);
}
FEDINCENTIVE_INLINE Doubles larger(Doubles a, Doubles b) {
  return FEDINCENTIVE_INTRINSIC(_mm_max_pd(a, b), _mm256_max_pd(a, b), _mm512_max_pd(a, b), a > b ? a : b);
}

// Of whole numbers; SSE2 has no instruction for it.
FEDINCENTIVE_INLINE IntMask smaller(IntMask a, IntMask b) {
  return FEDINCENTIVE_INTRINSIC(
      a < b ? a : b,
      reinterpret_cast<decltype(a)>(_mm256_min_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b))),
      reinterpret_cast<IntMask>(_mm512_min_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b))),
      a < b ? a : b);
}
FEDINCENTIVE_INLINE IntMask larger(IntMask a, IntMask b) {
  return FEDINCENTIVE_INTRINSIC(
      a > b ? a : b,
      reinterpret_cast<decltype(a)>(_mm256_max_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b))),
      reinterpret_cast<IntMask>(_mm512_max_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b))),
      a > b ? a : b);
}

// A comparator is an exchange: both values survive, NaN and signed zeros included.
template <class V>
FEDINCENTIVE_INLINE void exchange(V& a, V& b) {
  const V low = smaller(a, b);
  b = larger(b, a);
  a = low;
}

#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
FEDINCENTIVE_INLINE Doubles to_doubles(HalfFloats half) { return _mm512_cvtps_pd(half); }
FEDINCENTIVE_INLINE HalfFloats to_floats(Doubles wide) { return _mm512_cvtpd_ps(wide); }
#elif defined(__AVX2__) && FEDINCENTIVE_VECTOR_BYTES == 32
FEDINCENTIVE_INLINE Doubles to_doubles(HalfFloats half) { return _mm256_cvtps_pd(half); }
FEDINCENTIVE_INLINE HalfFloats to_floats(Doubles wide) { return _mm256_cvtpd_ps(wide); }
#else
FEDINCENTIVE_INLINE Doubles to_doubles(HalfFloats half) { return __builtin_convertvector(half, Doubles); }
FEDINCENTIVE_INLINE HalfFloats to_floats(Doubles wide) { return __builtin_convertvector(wide, HalfFloats); }
#endif

// The lower or upper half of the lanes in float64; a vector of doubles has only one part.
FEDINCENTIVE_INLINE Doubles widen_part(Floats values, int part) {
  HalfFloats half[2];
  std::memcpy(half, &values, sizeof values);
  return to_doubles(half[part]);
}
FEDINCENTIVE_INLINE Doubles widen_part(Doubles values, int) { return values; }

FEDINCENTIVE_INLINE Doubles load_wide(const float* from) { return to_doubles(load<HalfFloats>(from)); }
FEDINCENTIVE_INLINE Doubles load_wide(const double* from) { return load<Doubles>(from); }

FEDINCENTIVE_INLINE void fill(double* to, double value, int64_t count) {  // count: a whole number of vectors
  for (int64_t t = 0; t < count; t += kVector / 8) {
    store(to + t, Doubles{} + value);
    asm volatile("");  // or GCC makes it a `rep stos`, which takes longer than the tile's whole division
  }
}

#include "where.inl"

// The lanes that kernels work with; float16 and bfloat16 are widened to float as they are read.
struct Singles {
  using Lane = float;
  using Vector = Floats;
  using Key = IntMask;  // whole numbers in the same order: many processors compare them twice as fast
  using Mask = IntMask;
  using Where = FloatsWhere;
  using Count = int32_t;
  static constexpr int parts = 2;  // vectors of double that one vector widens to
};

struct Wides {
  using Lane = double;
  using Vector = Doubles;
  using Key = Doubles;
  using Mask = LongMask;
  using Where = DoublesWhere;
  using Count = int64_t;
  static constexpr int parts = 1;
};

// Values as keys and back: -0 is below 0 then, and a NaN beyond the infinity of its sign.
template <class To>
FEDINCENTIVE_INLINE To converted(Floats values) {
  if constexpr (std::is_same_v<To, Floats>) {
    return values;
  } else {
    const IntMask bits = reinterpret_cast<IntMask>(values);
    return bits ^ ((bits >> 31) & 0x7fffffff);
  }
}
template <class To>
FEDINCENTIVE_INLINE To converted(IntMask keys) {
  if constexpr (std::is_same_v<To, IntMask>)
    return keys;
  else
    return reinterpret_cast<Floats>(keys ^ ((keys >> 31) & 0x7fffffff));
}
template <class To>
FEDINCENTIVE_INLINE Doubles converted(Doubles values) {
  return values;
}

FEDINCENTIVE_INLINE Floats shifted(Words words) { return reinterpret_cast<Floats>(words << 16); }

#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
FEDINCENTIVE_INLINE Floats widen_bfloat16s(const uint16_t* from) {
  return shifted(reinterpret_cast<Words>(_mm512_cvtepu16_epi32(load<__m256i>(from))));
}
FEDINCENTIVE_INLINE Floats widen_float16s(const uint16_t* from) {
  return _mm512_cvtph_ps(reinterpret_cast<__m256i>(load<HalfWords>(from)));
}
#elif defined(__F16C__) && FEDINCENTIVE_VECTOR_BYTES == 32
FEDINCENTIVE_INLINE Floats widen_bfloat16s(const uint16_t* from) {
  return shifted(reinterpret_cast<Words>(_mm256_cvtepu16_epi32(load<__m128i>(from))));
}
FEDINCENTIVE_INLINE Floats widen_float16s(const uint16_t* from) {
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(load<HalfWords>(from)));
}
#else
FEDINCENTIVE_INLINE Floats widen_bfloat16s(const uint16_t* from) {
  return shifted(__builtin_convertvector(load<HalfWords>(from), Words));
}
inline Floats widen_float16s(const uint16_t* from) {  // widen_float16 of half.hpp, all lanes at once
  const Words half = __builtin_convertvector(load<HalfWords>(from), Words);
  const Words exponent_mask = Words{} + (0x7c00u << 13);
  Words bits = (half & 0x7fffu) << 13;
  const Words exponent = bits & exponent_mask;
  bits += (127u - 15u) << 23;
  bits += reinterpret_cast<Words>(exponent == exponent_mask) & ((128u - 16u) << 23);
  const Floats magic = reinterpret_cast<Floats>(Words{} + (113u << 23));
  const Words subnormal = reinterpret_cast<Words>(reinterpret_cast<Floats>(bits + (1u << 23)) - magic);
  const Words is_subnormal = reinterpret_cast<Words>(exponent == 0u);
  bits = (is_subnormal & subnormal) | (~is_subnormal & bits);
  return reinterpret_cast<Floats>(bits | ((half & 0x8000u) << 16));
}
#endif

template <class M>
FEDINCENTIVE_INLINE bool all_true(M mask) {  // a true lane is -1
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)) == 0xffff;
#elif defined(__AVX2__) && FEDINCENTIVE_VECTOR_BYTES == 32
  return _mm256_movemask_epi8(reinterpret_cast<__m256i>(mask)) == -1;
#endif
  uint64_t words[sizeof(M) / 8], all = ~uint64_t{0};
  std::memcpy(words, &mask, sizeof mask);
  for (size_t i = 0; i < sizeof(M) / 8; ++i) all &= words[i];
  return all == ~uint64_t{0};
}

// One part of a vector in memory in float64, and 0 where it does not hold.
template <class E>
FEDINCENTIVE_INLINE Doubles load_where(typename E::Where where, int part, const typename E::Lane* from) {
#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64  // faster than to take a vector apart
  if constexpr (E::parts == 2)
    return _mm512_maskz_cvtps_pd(static_cast<__mmask8>(where >> (8 * part)), load<__m256>(from + 8 * part));
#endif
  return widen_part(only(where, load<typename E::Vector>(from)), part);
}

template <class E>
constexpr int kLanes = kVector / sizeof(typename E::Lane);
template <class E>
constexpr int kTile = kTileBytes / sizeof(typename E::Lane);
