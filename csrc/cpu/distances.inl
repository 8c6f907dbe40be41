// Squared distances between clients, and widening to float64 for them. Included by kernels.inl inside its namespace.

// Any dtype to float64.
void widen(Dtype dtype, const void* from, double* to, int64_t count) {
  if (dtype == Dtype::float64) {
    std::memcpy(to, from, static_cast<size_t>(count) * 8);
  } else if (dtype == Dtype::float32) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<const float*>(from)[i];
  } else {
    constexpr int lanes = kVector / 4;
    for (int64_t i = 0; i < count; i += lanes) {
      uint16_t halves[lanes] = {};
      float floats[lanes];
      const int64_t number = count - i < lanes ? count - i : lanes;
      std::memcpy(halves, static_cast<const uint16_t*>(from) + i, static_cast<size_t>(number) * 2);
      widen_halves(dtype, halves, floats, lanes);
      for (int64_t lane = 0; lane < number; ++lane) to[i + lane] = floats[lane];
    }
  }
}

// Eight running sums by position modulo 8, whatever the vector width, added up in one order at the end; of several
// others at a time, so that no sum waits for its last addition.
template <int Others>
FEDINCENTIVE_INLINE void distances_to(const double* one, const double* others, int64_t stride, int64_t length,
                                      double* out) {
  constexpr int lanes = kVector / 8, vectors = 8 / lanes > 0 ? 8 / lanes : 1;
  Doubles sums[Others][vectors] = {};
  for (int64_t t = 0; t < length; t += 8) {  // rows are padded with zeros to a multiple of 8
    for (int v = 0; v < vectors; ++v) {
      const Doubles own = load<Doubles>(one + t + v * lanes);
#pragma GCC unroll 4
      for (int j = 0; j < Others; ++j) {
        const Doubles gap = own - load<Doubles>(others + j * stride + t + v * lanes);
        sums[j][v] += gap * gap;
      }
    }
  }
  for (int j = 0; j < Others; ++j) {
    double parts[8];
    std::memcpy(parts, sums[j], sizeof parts);
    out[j] = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
  }
}

void squared_distances(const double* one, const double* others, int64_t stride, int64_t count, int64_t length,
                       double* out) {
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) distances_to<4>(one, others + j * stride, stride, length, out + j);
  for (; j < count; ++j) distances_to<1>(one, others + j * stride, stride, length, out + j);
}
