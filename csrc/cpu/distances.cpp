#include "distances.hpp"

#include <algorithm>
#include <atomic>

#include "../core/process.hpp"
#include "dispatch.hpp"

namespace fedincentive {
namespace {

// Values of a row that are widened at a time: half a megabyte for all participants, from their number alone.
int64_t row_length(int64_t participants) {
  return std::clamp<int64_t>((int64_t{1} << 16) / std::max<int64_t>(participants, 1) / 8 * 8, 8, 1024);
}

void widen_row(const Kernels& kernels, const Source& source, int64_t begin, int64_t count, unsigned char* staging,
               double* row, int64_t padded) {
  const int64_t size = item_size(source.dtype);
  const void* from = static_cast<const unsigned char*>(source.pointer) + begin * size;
  if (source.layout) {
    gather(source.pointer, *source.layout, size, begin, count, staging);
    from = staging;
  }
  kernels.widen(source.dtype, from, row, count);
  std::fill(row + count, row + padded, 0.0);
}

void move_rows(const double* around, const std::vector<double>& scales, int64_t count, int64_t stride, double* rows) {
  const std::vector<double> origin(around, around + count);
  for (size_t i = 0; i < scales.size(); ++i, rows += stride)
    for (int64_t t = 0; t < count; ++t) rows[t] = (rows[t] - origin[static_cast<size_t>(t)]) * scales[i];
}

// Each task owns some rows i of the result and walks over all coordinates in order.
void fill_rows(const Kernels& kernels, const std::vector<Cloud>& clouds, int64_t n, bool to_last, int64_t around,
               const std::vector<double>& scales, int64_t first, int64_t step, std::atomic<bool>* stopped,
               double* out) {
  const int64_t length = row_length(n);
  std::vector<double> rows(static_cast<size_t>(n * length)), found(static_cast<size_t>(n));
  std::vector<unsigned char> staging(static_cast<size_t>(length) * 8);
  for (const Cloud& cloud : clouds) {
    for (int64_t begin = 0; begin < cloud.size; begin += length) {
      if (*stopped) return;
      try {
        poll();
      } catch (...) {
        *stopped = true;
        throw;
      }
      const int64_t count = std::min(length, cloud.size - begin), padded = (count + 7) / 8 * 8;
      for (int64_t i = 0; i < n; ++i) {
        if (to_last && i + 1 < n && i % step != first) continue;
        widen_row(kernels, cloud.sources[static_cast<size_t>(i)], begin, count, staging.data(), &rows[i * length],
                  padded);
      }
      if (!scales.empty()) move_rows(&rows[around * length], scales, padded, length, rows.data());
      for (int64_t i = first; i + 1 < n; i += step) {
        const int64_t from = to_last ? n - 1 : i + 1, others = to_last ? 1 : n - 1 - i;
        kernels.squared_distances(&rows[i * length], &rows[from * length], length, others, padded, found.data());
        for (int64_t j = 0; j < others; ++j) out[to_last ? i : i * n + from + j] += found[j];
      }
    }
  }
}

}  // namespace

std::vector<double> squared_distances(const std::vector<Cloud>& clouds, bool to_last, int64_t around,
                                      const std::vector<double>& scales, int64_t threads, const Kernels& kernels) {
  const int64_t n = clouds.empty() ? 0 : static_cast<int64_t>(clouds.front().sources.size());
  int64_t values = 0;
  for (const Cloud& cloud : clouds) values += cloud.size * n;
  const int64_t tasks = std::max<int64_t>(1, std::min(threads, values >> 17));
  std::vector<double> out(static_cast<size_t>(to_last ? std::max<int64_t>(n - 1, 0) : n * n), 0.0);
  std::atomic<bool> stopped{false};
  run_parallel(tasks, tasks, [&](int64_t, int64_t task) {
    fill_rows(kernels, clouds, n, to_last, around, scales, task, tasks, &stopped, out.data());
  });
  if (!to_last)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) out[j * n + i] = out[i * n + j];
  return out;
}

}  // namespace fedincentive
