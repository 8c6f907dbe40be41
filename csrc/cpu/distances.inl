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

// How many rows by how many others are compared at a time: as many sums as registers hold, so that a value that is
// loaded once is compared several times.
constexpr int kAbreast = kVector == 64 ? 4 : 1;

// Eight running sums of each pair, by position modulo 8 whatever the vector width, added up in one order at the end.
template <int Ones, int Others>
FEDINCENTIVE_INLINE void distances_between(const double* ones, const double* others, int64_t stride, int64_t length,
                                           double* out, int64_t out_stride) {
  constexpr int lanes = kVector / 8, vectors = 8 / lanes > 0 ? 8 / lanes : 1;
  Doubles sums[Ones][Others][vectors] = {};
  for (int64_t t = 0; t < length; t += 8) {  // rows are padded with zeros to a multiple of 8
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      Doubles own[Ones];
#pragma GCC unroll 4
      for (int i = 0; i < Ones; ++i) own[i] = load<Doubles>(ones + i * stride + t + v * lanes);
#pragma GCC unroll 4
      for (int j = 0; j < Others; ++j) {
        const Doubles other = load<Doubles>(others + j * stride + t + v * lanes);
#pragma GCC unroll 4
        for (int i = 0; i < Ones; ++i) {
          const Doubles gap = own[i] - other;
          sums[i][j][v] += gap * gap;
        }
      }
    }
  }
  for (int i = 0; i < Ones; ++i) {
    for (int j = 0; j < Others; ++j) {
      double parts[8];
      std::memcpy(parts, sums[i][j], sizeof parts);
      out[i * out_stride + j] =
          ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
    }
  }
}

template <int Ones>
void distances_of(const double* ones, const double* others, int64_t stride, int64_t count, int64_t length,
                  double* out) {
  constexpr int together = 4;
  int64_t j = 0;
  for (; j + together <= count; j += together)
    distances_between<Ones, together>(ones, others + j * stride, stride, length, out + j, count);
  for (; j < count; ++j) distances_between<Ones, 1>(ones, others + j * stride, stride, length, out + j, count);
}

void squared_distances(const double* ones, int64_t number, const double* others, int64_t count, int64_t stride,
                       int64_t length, double* out) {
  int64_t i = 0;
  for (; i + kAbreast <= number; i += kAbreast)
    distances_of<kAbreast>(ones + i * stride, others, stride, count, length, out + i * count);
  for (; i < number; ++i) distances_of<1>(ones + i * stride, others, stride, count, length, out + i * count);
}
