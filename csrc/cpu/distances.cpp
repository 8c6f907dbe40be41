#include "distances.hpp"

#include <algorithm>
#include <atomic>

#include "../core/process.hpp"
#include "dispatch.hpp"

namespace fedincentive {
namespace {

// Values of a row that are widened at a time, from the number of participants alone: half a megabyte for all of them,
// and eight rows in the first cache. A full row is not quite 4 KB, so that rows do not share the same few lines of it.
int64_t row_length(int64_t participants) {
  return std::clamp<int64_t>((int64_t{1} << 16) / std::max<int64_t>(participants, 1) / 8 * 8, 8, 504);
}

constexpr int64_t kRows = 4;  // of the result that are filled together

void widen_row(const Kernels& kernels, const Source& source, int64_t begin, int64_t count, unsigned char* staging,
               double* row, int64_t padded) {
  const int64_t size = item_size(source.dtype);
  const void* from = static_cast<const unsigned char*>(source.pointer) + begin * size;
  if (source.layout) {
    gather(source.pointer, *source.layout, size, begin, count, staging);
    from = staging;
  }
  kernels.widen(source.dtype, from, row, count);
  for (int64_t line = 0; line < count * size && !source.layout; line += 64)  // the next piece, perhaps past the end
    __builtin_prefetch(static_cast<const unsigned char*>(from) + count * size + line, 0, 2);
  std::fill(row + count, row + padded, 0.0);
}

void move_rows(const double* around, const std::vector<double>& scales, int64_t count, int64_t stride, double* rows) {
  const std::vector<double> origin(around, around + count);
  for (size_t i = 0; i < scales.size(); ++i, rows += stride)
    for (int64_t t = 0; t < count; ++t) rows[t] = (rows[t] - origin[static_cast<size_t>(t)]) * scales[i];
}

// Each task owns some rows of the result, a few at a time, and walks over all coordinates in order. The first rows have
// the most to do: tasks take turns at who comes first.
bool owns(int64_t row, int64_t task, int64_t tasks) {
  const int64_t turn = row / kRows / tasks, place = row / kRows % tasks;
  return (turn % 2 ? tasks - 1 - place : place) == task;
}

void fill_rows(const Kernels& kernels, const std::vector<Cloud>& clouds, int64_t n, bool to_last, int64_t around,
               const std::vector<double>& scales, int64_t task, int64_t tasks, std::atomic<bool>* stopped,
               double* out) {
  const int64_t length = row_length(n);
  std::vector<double> rows(static_cast<size_t>(n * length)), found(static_cast<size_t>(kRows * n));
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
        if (to_last && i + 1 < n && !owns(i, task, tasks)) continue;
        widen_row(kernels, cloud.sources[static_cast<size_t>(i)], begin, count, staging.data(), &rows[i * length],
                  padded);
      }
      if (!scales.empty()) move_rows(&rows[around * length], scales, padded, length, rows.data());
      for (int64_t first = 0; first + 1 < n; first += kRows) {
        if (!owns(first, task, tasks)) continue;
        const int64_t number = std::min(kRows, n - first), from = to_last ? n - 1 : first, others = n - from;
        kernels.squared_distances(&rows[first * length], number, &rows[from * length], others, length, padded,
                                  found.data());
        for (int64_t i = first; i < std::min(first + number, n - 1); ++i)
          for (int64_t j = to_last ? from : i + 1; j < n; ++j)
            out[to_last ? i : i * n + j] += found[static_cast<size_t>((i - first) * others + j - from)];
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
