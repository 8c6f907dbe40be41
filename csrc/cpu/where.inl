// In which lanes something holds: bits of a register where the instruction set has such, else a vector of 0 and -1.
// Included by vectors.inl.

// The lanes of one part of a mask, as wide as a double.
FEDINCENTIVE_INLINE LongMask widen_mask(IntMask mask, int part) {
  typedef int32_t HalfMask __attribute__((vector_size(kVector / 2)));
  HalfMask half[2];
  std::memcpy(half, &mask, sizeof mask);
  return __builtin_convertvector(half[part], LongMask);
}
FEDINCENTIVE_INLINE LongMask widen_mask(LongMask mask, int) { return mask; }

#if defined(__AVX512F__) && FEDINCENTIVE_VECTOR_BYTES == 64

using FloatsWhere = __mmask16;
using DoublesWhere = __mmask8;

FEDINCENTIVE_INLINE FloatsWhere not_above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
FEDINCENTIVE_INLINE DoublesWhere not_above(Doubles a, Doubles b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
FEDINCENTIVE_INLINE FloatsWhere below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
FEDINCENTIVE_INLINE DoublesWhere below(Doubles a, Doubles b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
FEDINCENTIVE_INLINE FloatsWhere both(FloatsWhere a, FloatsWhere b) { return _kand_mask16(a, b); }
FEDINCENTIVE_INLINE DoublesWhere both(DoublesWhere a, DoublesWhere b) { return _kand_mask8(a, b); }
FEDINCENTIVE_INLINE FloatsWhere either(FloatsWhere a, FloatsWhere b) { return _kor_mask16(a, b); }
FEDINCENTIVE_INLINE DoublesWhere either(DoublesWhere a, DoublesWhere b) { return _kor_mask8(a, b); }
FEDINCENTIVE_INLINE FloatsWhere elsewhere(FloatsWhere where) { return _knot_mask16(where); }
FEDINCENTIVE_INLINE DoublesWhere elsewhere(DoublesWhere where) { return _knot_mask8(where); }
FEDINCENTIVE_INLINE bool anywhere(FloatsWhere where) { return where != 0; }
FEDINCENTIVE_INLINE bool anywhere(DoublesWhere where) { return where != 0; }

// a + 1 where it holds
FEDINCENTIVE_INLINE IntMask count_where(IntMask a, FloatsWhere where) {
  const auto number = reinterpret_cast<__m512i>(a);
  return reinterpret_cast<IntMask>(_mm512_mask_sub_epi32(number, where, number, _mm512_set1_epi32(-1)));
}
FEDINCENTIVE_INLINE LongMask count_where(LongMask a, DoublesWhere where) {
  const auto number = reinterpret_cast<__m512i>(a);
  return reinterpret_cast<LongMask>(_mm512_mask_sub_epi64(number, where, number, _mm512_set1_epi64(-1)));
}
// the larger or smaller of a and b where it holds, else a
FEDINCENTIVE_INLINE Floats larger_where(FloatsWhere where, Floats a, Floats b) {
  return _mm512_mask_max_ps(a, where, a, b);
}
FEDINCENTIVE_INLINE Doubles larger_where(DoublesWhere where, Doubles a, Doubles b) {
  return _mm512_mask_max_pd(a, where, a, b);
}
FEDINCENTIVE_INLINE Floats smaller_where(FloatsWhere where, Floats a, Floats b) {
  return _mm512_mask_min_ps(a, where, a, b);
}
FEDINCENTIVE_INLINE Doubles smaller_where(DoublesWhere where, Doubles a, Doubles b) {
  return _mm512_mask_min_pd(a, where, a, b);
}
// the value where it holds, else 0
FEDINCENTIVE_INLINE Floats only(FloatsWhere where, Floats value) { return _mm512_maskz_mov_ps(where, value); }
FEDINCENTIVE_INLINE Doubles only(DoublesWhere where, Doubles value) { return _mm512_maskz_mov_pd(where, value); }
// total + amount where it holds in one part of the lanes
FEDINCENTIVE_INLINE Doubles add_where(FloatsWhere where, int part, Doubles total, Doubles amount) {
  return _mm512_mask_add_pd(total, static_cast<__mmask8>(where >> (8 * part)), total, amount);
}
FEDINCENTIVE_INLINE Doubles add_where(DoublesWhere where, int, Doubles total, Doubles amount) {
  return _mm512_mask_add_pd(total, where, total, amount);
}
// a where it holds, else b
FEDINCENTIVE_INLINE IntMask pick(FloatsWhere where, IntMask a, IntMask b) {
  return reinterpret_cast<IntMask>(
      _mm512_mask_mov_epi32(reinterpret_cast<__m512i>(b), where, reinterpret_cast<__m512i>(a)));
}
FEDINCENTIVE_INLINE LongMask pick(DoublesWhere where, LongMask a, LongMask b) {
  return reinterpret_cast<LongMask>(
      _mm512_mask_mov_epi64(reinterpret_cast<__m512i>(b), where, reinterpret_cast<__m512i>(a)));
}
FEDINCENTIVE_INLINE FloatsWhere where_of(IntMask mask) { return _mm512_movepi32_mask(reinterpret_cast<__m512i>(mask)); }
FEDINCENTIVE_INLINE DoublesWhere where_of(LongMask mask) {
  return _mm512_movepi64_mask(reinterpret_cast<__m512i>(mask));
}

#else

using FloatsWhere = IntMask;
using DoublesWhere = LongMask;

FEDINCENTIVE_INLINE IntMask not_above(Floats a, Floats b) { return reinterpret_cast<IntMask>(a <= b); }
FEDINCENTIVE_INLINE LongMask not_above(Doubles a, Doubles b) { return reinterpret_cast<LongMask>(a <= b); }
FEDINCENTIVE_INLINE IntMask below(Floats a, Floats b) { return reinterpret_cast<IntMask>(a < b); }
FEDINCENTIVE_INLINE LongMask below(Doubles a, Doubles b) { return reinterpret_cast<LongMask>(a < b); }

template <class M>
FEDINCENTIVE_INLINE M both(M a, M b) {
  return a & b;
}
template <class M>
FEDINCENTIVE_INLINE M either(M a, M b) {
  return a | b;
}
template <class M>
FEDINCENTIVE_INLINE M elsewhere(M where) {
  return ~where;
}
template <class M>
FEDINCENTIVE_INLINE bool anywhere(M where) {
  uint64_t words[sizeof(M) / 8], any = 0;
  std::memcpy(words, &where, sizeof where);
  for (size_t i = 0; i < sizeof(M) / 8; ++i) any |= words[i];
  return any != 0;
}
template <class M>
FEDINCENTIVE_INLINE M count_where(M a, M where) {
  return a - where;
}
template <class V, class M>
FEDINCENTIVE_INLINE V pick(M where, V a, V b) {
  return reinterpret_cast<V>((where & reinterpret_cast<M>(a)) | (~where & reinterpret_cast<M>(b)));
}
template <class V, class M>
FEDINCENTIVE_INLINE V larger_where(M where, V a, V b) {
  return pick(where, larger(a, b), a);
}
template <class V, class M>
FEDINCENTIVE_INLINE V smaller_where(M where, V a, V b) {
  return pick(where, smaller(a, b), a);
}
template <class V, class M>
FEDINCENTIVE_INLINE V only(M where, V value) {
  return reinterpret_cast<V>(where & reinterpret_cast<M>(value));
}
template <class M>
FEDINCENTIVE_INLINE Doubles add_where(M where, int part, Doubles total, Doubles amount) {
  return total + reinterpret_cast<Doubles>(widen_mask(where, part) & reinterpret_cast<LongMask>(amount));
}
template <class M>
FEDINCENTIVE_INLINE M where_of(M mask) {
  return mask;
}

#endif
