// Reading the values of clients: in place or by way of scratch memory, and ahead of their use. Included by kernels.inl
// inside its namespace.

// NaN becomes +infinity: the comparison is false for it. It sorts as the largest; kept ones are examined one by one.
template <class E>
FEDINCENTIVE_INLINE typename E::Vector read_ordered(const typename E::Lane* from) {
  const typename E::Vector infinity = typename E::Vector{} + static_cast<typename E::Lane>(__builtin_inf());
  return smaller(load<typename E::Vector>(from), infinity);
}

// Halves become floats, as many as a whole number of vectors covers: `from` and `to` have room for `full` of them.
inline void widen_halves(Dtype dtype, const uint16_t* from, float* to, int64_t full) {
  constexpr int lanes = kVector / 4;
  if (dtype == Dtype::float16)
    for (int64_t t = 0; t < full; t += lanes) store(to + t, widen_float16s(from + t));
  else
    for (int64_t t = 0; t < full; t += lanes) store(to + t, widen_bfloat16s(from + t));
}

// Where `count` values of a client from `begin` on can be read as `full` lanes: in place, or copied to a slot of
// staging memory if they are strided, halves, or fewer than `full`.
template <class E>
const typename E::Lane* source(const TileJob& job, const Scratch& scratch, int64_t client, int64_t begin, int64_t count,
                               int64_t full, int slot) {
  const int64_t item = item_size(job.dtype);
  const auto* base = static_cast<const unsigned char*>(job.segment.pointers[client]);
  const Layout* layout = job.segment.layouts ? job.segment.layouts[client] : nullptr;
  const bool whole = !layout && count == full;
  if (whole && item == sizeof(typename E::Lane)) return reinterpret_cast<const typename E::Lane*>(base + begin * item);
  auto* to = reinterpret_cast<typename E::Lane*>(scratch.staging) + slot * full;
  unsigned char* copy = item == sizeof(typename E::Lane) ? reinterpret_cast<unsigned char*>(to) : scratch.halves;
  if (layout)
    gather(base, *layout, item, begin, count, copy);
  else if (!whole)
    std::memcpy(copy, base + begin * item, static_cast<size_t>(count * item));
  if (!whole) std::memset(copy + count * item, 0, static_cast<size_t>((full - count) * item));
  if constexpr (sizeof(typename E::Lane) == 4) {
    const unsigned char* halves = whole ? base + begin * item : copy;
    if (item == 2) widen_halves(job.dtype, reinterpret_cast<const uint16_t*>(halves), to, full);
  }
  return to;
}

// The same for some clients from `client` on, to slots in their order. Returns whether all are read in place.
template <class E>
FEDINCENTIVE_INLINE bool sources(const TileJob& job, const Scratch& scratch, int64_t client, int64_t clients,
                                 int64_t begin, int64_t count, const typename E::Lane** from) {
  using Lane = typename E::Lane;
  if (!job.segment.layouts && count == kTile<E> && item_size(job.dtype) == sizeof(Lane)) {
    for (int64_t i = 0; i < clients; ++i) from[i] = static_cast<const Lane*>(job.segment.pointers[client + i]) + begin;
    return true;
  }
  for (int64_t i = 0; i < clients; ++i)
    from[i] = source<E>(job, scratch, client + i, begin, count, kTile<E>, static_cast<int>(i));
  return false;
}

// With every line that is read, one of the same client a little further on is asked for, so that memory is busy while
// values are compared or added.
constexpr int kNear = 320, kFar = 1088;  // bytes: of many clients at a time, of few; not round, as strides often are

template <int Bytes, class Lane>
FEDINCENTIVE_INLINE void read_ahead(const Lane* const* from, int count, int64_t at) {
  if (at * sizeof(Lane) % 64 != 0) return;
  for (int i = 0; i < count; ++i) __builtin_prefetch(from[i] + at + Bytes / sizeof(Lane));
}
