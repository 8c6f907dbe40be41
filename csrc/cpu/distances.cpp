#include "distances.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "../core/process.hpp"
#include "dispatch.hpp"

namespace fedincentive {
namespace {

constexpr int64_t kRows = 4;    // of the result that are filled together
constexpr int64_t kParts = 16;  // of the coordinates, each with sums of its own where they are few enough
constexpr int64_t kMostSums = int64_t{1} << 20;

// Which distances are asked for.
struct Question {
  const std::vector<Cloud>& clouds;
  int64_t n;
  bool to_last;
  int64_t around;
  const std::vector<double>& scales;
  const Kernels& kernels;
};

// Values are compared in float32 where they are no wider: differences of such are exact to their last bit, and sums of
// some hundred squares to a few.
bool singles(const Question& question) {
  for (const Cloud& cloud : question.clouds)
    for (const Source& source : cloud.sources)
      if (source.dtype == Dtype::float64) return false;
  return true;
}

// Values of a row that are looked at at a time, from the number of participants alone: half a megabyte for all of them
// (of many more, a kilobyte each), and eight rows in the first cache. A full row is not quite 4 KB, so that rows do not
// share the same few lines of it.
template <class Lane>
int64_t row_length(int64_t participants) {
  const int64_t size = sizeof(Lane), least = size == 4 ? 256 : 16;
  const int64_t even = (int64_t{1} << 19) / size / std::max<int64_t>(participants, 1) / 16 * 16;
  return std::clamp<int64_t>(even, least, 4032 / size / 16 * 16);
}

// Tells whether the sums can be had for (short of 2^-100 squares of float32 may have lost digits).
bool precise(double sum) { return sum >= 0x1p-100 && sum <= 0x1p127; }

// A piece of every row at a time: read, compared, and added to the sums.
template <class Lane>
class Piece {
 public:
  explicit Piece(const Question& question)
      : question_(question),
        length_(row_length<Lane>(question.n)),
        rows_(static_cast<size_t>(question.n * length_)),
        found_(static_cast<size_t>(kRows * question.n)),
        wide_(static_cast<size_t>(2 * length_)),
        origin_(static_cast<size_t>(question.scales.empty() ? 0 : length_)),
        staging_(static_cast<size_t>(length_) * 8) {}

  int64_t length() const { return length_; }

  void read(const Cloud& cloud, int64_t begin, int64_t count) {
    cloud_ = &cloud;
    begin_ = begin;
    count_ = count;
    padded_ = (count + 15) / 16 * 16;
    if (!origin_.empty()) widen(question_.around, origin_.data());
  }

  void read_row(int64_t i) {
    Lane* row = this->row(i);
    if (!origin_.empty()) {
      move(i, wide_.data());
      for (int64_t t = 0; t < count_; ++t) row[t] = static_cast<Lane>(wide_[static_cast<size_t>(t)]);
    } else if constexpr (sizeof(Lane) == 4) {
      const Source& source = cloud_->sources[static_cast<size_t>(i)];
      question_.kernels.widen_singles(source.dtype, values(source), row, count_);
    } else {
      widen(i, row);
    }
    std::fill(row + count_, row + padded_, Lane{0});
  }

  // The distances of rows from `first` on to those from `from` on.
  const double* compare(int64_t first, int64_t number, int64_t from) {
    const int64_t others = question_.n - from;
    if constexpr (sizeof(Lane) == 8) {
      question_.kernels.squared_distances(row(first), number, row(from), others, length_, padded_, found_.data());
    } else {
      question_.kernels.squared_distances_singles(row(first), number, row(from), others, length_, padded_,
                                                  found_.data());
      for (int64_t i = first; i < first + number; ++i)
        for (int64_t j = std::max(from, i + 1); j < question_.n; ++j) mend(i, j, &at(i - first, j - from, others));
    }
    return found_.data();
  }

 private:
  Lane* row(int64_t i) { return rows_.data() + i * length_; }
  double& at(int64_t i, int64_t j, int64_t others) { return found_[static_cast<size_t>(i * others + j)]; }

  // Where the values of a source are one after the other. Those after them are asked for, perhaps past the end.
  const void* values(const Source& source) {
    const int64_t size = item_size(source.dtype);
    if (source.layout) {
      gather(source.pointer, *source.layout, size, begin_, count_, staging_.data());
      return staging_.data();
    }
    const unsigned char* from = static_cast<const unsigned char*>(source.pointer) + begin_ * size;
    for (int64_t line = 0; line < count_ * size; line += 64) __builtin_prefetch(from + count_ * size + line, 0, 2);
    return from;
  }

  void widen(int64_t i, double* to) {
    const Source& source = cloud_->sources[static_cast<size_t>(i)];
    question_.kernels.widen(source.dtype, values(source), to, count_);
  }

  void move(int64_t i, double* to) {
    widen(i, to);
    if (origin_.empty()) return;
    const double scale = question_.scales[static_cast<size_t>(i)];
    for (int64_t t = 0; t < count_; ++t) to[t] = (to[t] - origin_[static_cast<size_t>(t)]) * scale;
  }

  // What float32 is too narrow for is compared in float64.
  void mend(int64_t i, int64_t j, double* sum) {
    if (precise(*sum)) return;
    if (*sum == 0 && !std::memcmp(row(i), row(j), static_cast<size_t>(count_) * sizeof(Lane))) return;
    if (std::isnan(*sum)) {
      const auto finite = [](Lane value) { return std::isfinite(value); };
      if (!std::all_of(row(i), row(i) + count_, finite) || !std::all_of(row(j), row(j) + count_, finite)) return;
    }
    double *one = wide_.data(), *other = one + length_;
    move(i, one);
    move(j, other);
    for (double* end : {one, other}) std::fill(end + count_, end + padded_, 0.0);
    question_.kernels.squared_distances(one, 1, other, 1, length_, padded_, sum);
  }

  const Question& question_;
  int64_t length_;
  std::vector<Lane> rows_;
  std::vector<double> found_, wide_, origin_;
  std::vector<unsigned char> staging_;
  const Cloud* cloud_ = nullptr;
  int64_t begin_ = 0, count_ = 0, padded_ = 0;
};

// Some rows of the result belong to each of several teams, a few at a time. The first rows have the most to do: teams
// take turns at who comes first.
bool owns(int64_t row, int64_t team, int64_t teams) {
  const int64_t turn = row / kRows / teams, place = row / kRows % teams;
  return (turn % 2 ? teams - 1 - place : place) == team;
}

// One part of the pieces, in order, for the rows of one team.
template <class Lane>
void fill_rows(const Question& question, int64_t part, int64_t parts, int64_t team, int64_t teams,
               std::atomic<bool>* stopped, double* out) {
  const int64_t n = question.n;
  Piece<Lane> piece(question);
  int64_t pieces = 0, at = 0;
  for (const Cloud& cloud : question.clouds) pieces += (cloud.size + piece.length() - 1) / piece.length();
  const int64_t least = pieces * part / parts, most = pieces * (part + 1) / parts;
  for (const Cloud& cloud : question.clouds) {
    for (int64_t begin = 0; begin < cloud.size; begin += piece.length(), ++at) {
      if (at < least || at >= most) continue;
      if (*stopped) return;
      try {
        poll();
      } catch (...) {
        *stopped = true;
        throw;
      }
      piece.read(cloud, begin, std::min(piece.length(), cloud.size - begin));
      for (int64_t i = 0; i < n; ++i)
        if (!question.to_last || i + 1 == n || owns(i, team, teams)) piece.read_row(i);
      for (int64_t first = 0; first + 1 < n; first += kRows) {
        if (!owns(first, team, teams)) continue;
        const int64_t number = std::min(kRows, n - first), from = question.to_last ? n - 1 : first, others = n - from;
        const double* found = piece.compare(first, number, from);
        for (int64_t i = first; i < std::min(first + number, n - 1); ++i)
          for (int64_t j = question.to_last ? from : i + 1; j < n; ++j)
            out[question.to_last ? i : i * n + j] += found[(i - first) * others + j - from];
      }
    }
  }
}

}  // namespace

std::vector<double> squared_distances(const std::vector<Cloud>& clouds, bool to_last, int64_t around,
                                      const std::vector<double>& scales, int64_t threads, const Kernels& kernels) {
  const int64_t n = clouds.empty() ? 0 : static_cast<int64_t>(clouds.front().sources.size());
  const Question question{clouds, n, to_last, around, scales, kernels};
  const auto fill = singles(question) ? fill_rows<float> : fill_rows<double>;
  int64_t values = 0;
  for (const Cloud& cloud : clouds) values += cloud.size * n;
  // Parts depend on the data alone, never on the number of threads: what adds up to a sum does so in one order.
  const size_t sums = static_cast<size_t>(to_last ? std::max<int64_t>(n - 1, 0) : n * n);
  const int64_t parts = static_cast<int64_t>(sums) * kParts <= kMostSums && values >> 17 > 0 ? kParts : 1;
  const int64_t useful = std::max<int64_t>(1, std::min(threads, values >> 17));
  const int64_t teams = (useful + parts - 1) / parts;
  std::vector<std::vector<double>> out(static_cast<size_t>(parts), std::vector<double>(sums, 0.0));
  std::atomic<bool> stopped{false};
  run_parallel(parts * teams, useful, [&](int64_t, int64_t task) {
    const int64_t part = task / teams;
    fill(question, part, parts, task % teams, teams, &stopped, out[static_cast<size_t>(part)].data());
  });
  std::vector<double> total = std::move(out.front());
  for (size_t part = 1; part < out.size(); ++part)
    for (size_t i = 0; i < sums; ++i) total[i] += out[part][i];
  if (!to_last)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = i + 1; j < n; ++j) total[static_cast<size_t>(j * n + i)] = total[static_cast<size_t>(i * n + j)];
  return total;
}

}  // namespace fedincentive
