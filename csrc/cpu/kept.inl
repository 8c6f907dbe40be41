// What becomes of the values that are not trimmed: they are added up, or not looked at. Included by
// kernels.inl inside its namespace.

// Widening to float64 costs more than comparing, so four values are added in their own precision first: two roundings
// per value, however many clients there are. (An overflow there is not finite and is examined.)
template <class V>
FEDINCENTIVE_INLINE V sum_of_four(V a, V b, V c, V d) {
  return (a + b) + (c + d);
}

template <class V>
FEDINCENTIVE_INLINE Doubles add_values(Doubles total, const V* values, int count, int part) {
  int i = 0;
  for (; i + 4 <= count; i += 4)
    total += widen_part(sum_of_four(values[i], values[i + 1], values[i + 2], values[i + 3]), part);
  if (i + 2 <= count) {
    total += widen_part(values[i] + values[i + 1], part);
    i += 2;
  }
  if (i < count) total += widen_part(values[i], part);
  return total;
}

// Running sums stay in registers while all kept wires pass by.
template <class E>
void add_kept(const typename E::Lane* wires, const uint32_t* kept, uint32_t count, double* sums) {
  using Vector = typename E::Vector;
  constexpr int parts = E::parts, unroll = 4;
  for (int t = 0; t < kTile<E>; t += unroll * kLanes<E>) {
    Doubles totals[unroll * parts];
    for (int v = 0; v < unroll * parts; ++v) totals[v] = load<Doubles>(sums + t + v * (kVector / 8));
    for (uint32_t w = 0; w < count; w += 4) {
      const int number = count - w < 4 ? static_cast<int>(count - w) : 4;
      const typename E::Lane* from[4];
      for (int i = 0; i < number; ++i) from[i] = wires + kept[w + i] * kTile<E> + t;
      for (int v = 0; v < unroll; ++v) {
        Vector values[4];
        for (int i = 0; i < number; ++i) values[i] = converted<Vector>(load<typename E::Key>(from[i] + v * kLanes<E>));
        for (int part = 0; part < parts; ++part)
          totals[v * parts + part] = add_values(totals[v * parts + part], values, number, part);
      }
    }
    for (int v = 0; v < unroll * parts; ++v) store(sums + t + v * (kVector / 8), totals[v]);
  }
}

// What a plan, whose wires hold keys, does with kept values: it adds them up, or nothing (for weighted.inl).
struct AddKept {
  double* sums;
  template <class E>
  void take(int t, const typename E::Vector* values, int count) const {
    constexpr int parts = E::parts;
    for (int part = 0; part < parts; ++part) {
      double* to = sums + t + part * (kVector / 8);
      store(to, add_values(load<Doubles>(to), values, count, part));
    }
  }
  template <class E>
  void take_wires(const typename E::Lane* wires, const uint32_t* kept, uint32_t count) const {
    add_kept<E>(wires, kept, count, sums);
  }
};

// The same one by one in float64, scaled: for sums that overflow.
struct AddScaled {
  double* sums;
  double shrink;
  template <class E>
  void take(int t, const typename E::Vector* values, int count) const {
    for (int part = 0; part < E::parts; ++part) {
      double* to = sums + t + part * (kVector / 8);
      Doubles total = load<Doubles>(to);
      for (int i = 0; i < count; ++i) total += widen_part(values[i], part) * shrink;
      store(to, total);
    }
  }
  template <class E>
  void take_wires(const typename E::Lane* wires, const uint32_t* kept, uint32_t count) const {
    for (uint32_t w = 0; w < count; ++w)
      for (int t = 0; t < kTile<E>; t += kLanes<E>) {
        const auto value = converted<typename E::Vector>(load<typename E::Key>(wires + kept[w] * kTile<E> + t));
        take<E>(t, &value, 1);
      }
  }
};

// Nothing: only what is trimmed is of interest.
struct Forget {
  template <class E>
  void take(int, const typename E::Vector*, int) const {}
  template <class E>
  void take_wires(const typename E::Lane*, const uint32_t*, uint32_t) const {}
};
