// The kernels without Python, small sizes, every instruction set's unit this CPU can run: built by test_sanitizers.py
// with AddressSanitizer, with UndefinedBehaviorSanitizer, and with the 64-byte unit compiled for AVX2. Inputs sit at
// the very end of their allocations, so that reading one value too many is seen.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "checking.hpp"
#include "core/half.hpp"
#include "core/plan.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/distances.hpp"
#include "cpu/reduce.hpp"

using namespace fedincentive;

namespace {

// One client's values in an allocation of exactly their size.
struct Row {
  std::unique_ptr<unsigned char[]> bytes;
  std::vector<double> values;
};

Row row_of(Dtype dtype, std::vector<double> values) {
  const int64_t size = item_size(dtype);
  Row row{std::make_unique<unsigned char[]>(values.size() * size), std::move(values)};
  for (size_t i = 0; i < row.values.size(); ++i) {
    const float single = static_cast<float>(row.values[i]);
    const uint16_t half = dtype == Dtype::float16 ? narrow_float16(row.values[i]) : narrow_bfloat16(row.values[i]);
    unsigned char* to = row.bytes.get() + i * size;
    if (dtype == Dtype::float64) std::memcpy(to, &row.values[i], 8);
    if (dtype == Dtype::float32) std::memcpy(to, &single, 4), row.values[i] = single;
    if (size == 2) {
      std::memcpy(to, &half, 2);
      row.values[i] = dtype == Dtype::float16 ? widen_float16(half) : widen_bfloat16(half);
    }
  }
  return row;
}

double expected(const std::vector<Row>& rows, size_t coordinate, int64_t trim, const std::vector<double>& weights) {
  std::vector<std::pair<double, size_t>> column;
  for (size_t i = 0; i < rows.size(); ++i) column.emplace_back(rows[i].values[coordinate], i);
  std::stable_sort(column.begin(), column.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double sum = 0, total = 0;
  for (size_t r = static_cast<size_t>(trim); r < rows.size() - static_cast<size_t>(trim); ++r) {
    const double weight = weights.empty() ? 1 : weights[column[r].second];
    sum += weight * column[r].first;
    total += weight;
  }
  return sum / total;
}

void test_reduce(std::mt19937_64& random, Dtype dtype, int64_t n, int64_t m, int64_t trim, bool weighted, bool strided,
                 bool ties) {
  std::normal_distribution<double> normal;
  std::vector<Row> rows;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> values(static_cast<size_t>(m));
    for (double& value : values) value = ties ? std::round(normal(random)) : normal(random);
    rows.push_back(row_of(dtype, std::move(values)));
  }
  // A strided client holds its values backward with gaps of one.
  std::vector<std::unique_ptr<unsigned char[]>> spread;
  std::vector<Layout> layouts(static_cast<size_t>(n));
  std::vector<const void*> pointers;
  std::vector<const Layout*> layout_of(static_cast<size_t>(n), nullptr);
  const int64_t size = item_size(dtype);
  for (int64_t i = 0; i < n; ++i) {
    pointers.push_back(rows[i].bytes.get());
    if (!strided || i % 2 || m == 0) continue;
    spread.push_back(std::make_unique<unsigned char[]>(static_cast<size_t>((2 * m - 1) * size)));
    for (int64_t c = 0; c < m; ++c)
      std::memcpy(spread.back().get() + 2 * (m - 1 - c) * size, rows[i].bytes.get() + c * size, size);
    layouts[i] = Layout{1, {m}, {-2 * size}};
    layout_of[i] = &layouts[i];
    pointers[i] = spread.back().get() + 2 * (m - 1) * size;
  }
  Request request;
  request.dtype = dtype;
  request.clients = n;
  request.trim = trim;
  request.wide_output = true;
  if (weighted)
    for (int64_t i = 0; i < n; ++i) request.weights.push_back(1 + static_cast<double>(i % 5));
  std::vector<std::vector<double>> results;
  for (const Kernels* unit : units()) {
    for (int64_t threads : {1, 3}) {
      auto out = std::make_unique<double[]>(static_cast<size_t>(m));
      request.threads = threads;
      request.segments = {{pointers.data(), strided ? layout_of.data() : nullptr, m, out.get()}};
      const Findings findings = reduce(request, *unit);
      CHECK(findings.not_finite == 0, "%s found non-finite values", unit->name);
      results.emplace_back(out.get(), out.get() + m);
    }
  }
  // A trimmed mean without weights adds up four values at a time in their own precision.
  const bool in_singles = trim > 0 && !weighted && dtype != Dtype::float64;
  const double tolerance = in_singles ? std::ldexp(1.0, -22) : 1e-12 * static_cast<double>(n);
  for (int64_t c = 0; c < m; ++c) {
    const double right = expected(rows, static_cast<size_t>(c), trim, request.weights);
    for (const auto& result : results) {
      CHECK(std::fabs(result[c] - right) <= tolerance, "dtype %d n %ld trim %ld: %g, not %g", static_cast<int>(dtype),
            static_cast<long>(n), static_cast<long>(trim), result[c], right);
      CHECK(std::memcmp(&result[c], &results[0][c], 8) == 0, "units differ at n %ld", static_cast<long>(n));
    }
  }
  // The clients' own dtype, written to an allocation of exactly that size.
  request.wide_output = false;
  auto out = std::make_unique<unsigned char[]>(static_cast<size_t>(m * size));
  request.segments = {{pointers.data(), strided ? layout_of.data() : nullptr, m, out.get()}};
  reduce(request, *units().back());
}

Request wide_request(Dtype dtype, const std::vector<const void*>& pointers, std::vector<double>& out) {
  Request request;
  request.dtype = dtype;
  request.clients = static_cast<int64_t>(pointers.size());
  request.wide_output = true;
  request.segments = {{pointers.data(), nullptr, static_cast<int64_t>(out.size()), out.data()}};
  return request;
}

void test_bad_values(Dtype dtype) {
  const int64_t n = 9, m = 70;
  std::vector<Row> rows;
  std::vector<const void*> pointers;
  for (int64_t i = 0; i < n; ++i) rows.push_back(row_of(dtype, std::vector<double>(m, static_cast<double>(i))));
  rows[2] = row_of(dtype, std::vector<double>(m, std::nan("")));
  rows[4] = row_of(dtype, std::vector<double>(m, INFINITY));
  rows[6] = row_of(dtype, std::vector<double>(m, -INFINITY));
  for (const Row& row : rows) pointers.push_back(row.bytes.get());
  for (const Kernels* unit : units()) {
    std::vector<double> out(m);
    Request request = wide_request(dtype, pointers, out);
    request.trim = 2;
    CHECK(reduce(request, *unit).not_finite == 0, "two on each side are trimmed");
    CHECK(std::fabs(out[69] - (1 + 3 + 5 + 7 + 8) / 5.0) < 1e-14, "mean %g", out[69]);
    request.trim = 1;
    CHECK(reduce(request, *unit).clients.empty(), "nobody asks whose it is");
    request.stop_early = true;
    const Findings findings = reduce(request, *unit);
    CHECK(findings.not_finite == m && findings.clients == std::vector<int64_t>{4}, "the infinity stays");
    request.trim = 0;
    CHECK((reduce(request, *unit).clients == std::vector<int64_t>{2, 4, 6}), "all are named");
  }
}

// NaN anywhere among many clients, several groups of them: what was trimmed streamed is done again by the plan.
void test_scattered_nan(std::mt19937_64& random, Dtype dtype, int64_t n, int64_t k) {
  const int64_t m = 300;
  std::vector<std::vector<double>> values(static_cast<size_t>(n), std::vector<double>(m));
  for (auto& row : values)
    for (double& value : row) value = static_cast<double>(random() % 64);
  for (int64_t t = 0; t < m; t += 3)
    for (int64_t i = 0; i < k; ++i) values[random() % static_cast<uint64_t>(n)][static_cast<size_t>(t)] = std::nan("");
  std::vector<Row> rows;
  std::vector<const void*> pointers;
  for (const auto& row : values) rows.push_back(row_of(dtype, row));
  for (const Row& row : rows) pointers.push_back(row.bytes.get());
  for (const Kernels* unit : units()) {
    std::vector<double> out(m);
    Request request = wide_request(dtype, pointers, out);
    request.trim = k;
    CHECK(reduce(request, *unit).not_finite == 0, "all of them are trimmed");
    for (int64_t t = 0; t < m; ++t) {
      std::vector<double> column;
      for (const auto& row : values) column.push_back(std::isnan(row[t]) ? INFINITY : row[t]);
      std::sort(column.begin(), column.end());
      double sum = 0;
      for (int64_t r = k; r < n - k; ++r) sum += column[static_cast<size_t>(r)];
      CHECK(std::fabs(out[t] - sum / static_cast<double>(n - 2 * k)) < 1e-12, "n %ld k %ld t %ld", n, k, t);
    }
  }
}

void test_distances(std::mt19937_64& random, int64_t n, int64_t m, bool with_doubles) {
  const double off = with_doubles ? 1e-12 : 1e-6;
  std::normal_distribution<double> normal;
  std::vector<Row> rows;
  Cloud cloud{{}, m};
  for (int64_t i = 0; i < n; ++i) {
    std::vector<double> values(static_cast<size_t>(m));
    for (double& value : values) value = normal(random);
    const Dtype dtype = static_cast<Dtype>(i % 4 == 1 && !with_doubles ? 0 : i % 4);
    rows.push_back(row_of(dtype, std::move(values)));
    cloud.sources.push_back({rows.back().bytes.get(), nullptr, dtype});
  }
  std::vector<double> first;
  for (const Kernels* unit : units()) {
    const std::vector<double> all = squared_distances({cloud, cloud}, false, -1, {}, 3, *unit);
    const std::vector<double> last = squared_distances({cloud, cloud}, true, -1, {}, 1, *unit);
    if (first.empty()) first = all;
    CHECK(all == first, "units differ");
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double right = 0;
        for (int64_t c = 0; c < m; ++c) right += 2 * std::pow(rows[i].values[c] - rows[j].values[c], 2);
        CHECK(std::fabs(all[i * n + j] - right) <= off * (1 + right), "%g, not %g", all[i * n + j], right);
      }
      if (i + 1 < n) CHECK(std::fabs(last[i] - all[i * n + n - 1]) <= off * (1 + last[i]), "to the last one");
    }
  }
}

// All 65536 halves there and back, in every unit, and roundings at and beside every midpoint.
void test_halves() {
  std::vector<uint16_t> every(65536);
  for (uint32_t h = 0; h < 65536; ++h) every[h] = static_cast<uint16_t>(h);
  for (const Kernels* unit : units()) {
    for (Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
      std::vector<double> wide(65536);
      unit->widen(dtype, every.data(), wide.data(), 65536);
      for (uint32_t h = 0; h < 65536; ++h) {
        const bool brain = dtype == Dtype::bfloat16;
        const double one = brain ? widen_bfloat16(every[h]) : widen_float16(every[h]);
        CHECK((std::isnan(one) && std::isnan(wide[h])) || one == wide[h], "half %x", h);
        const int exponent = brain ? (h >> 7) & 255 : (h >> 10) & 31, top = brain ? 255 : 31;
        if (exponent == top) continue;
        const double mantissa = brain ? h & 127 : h & 1023, unit_size = brain ? 128 : 1024, bias = brain ? 127 : 15;
        const double scale = std::ldexp(1.0, (exponent ? exponent : 1) - static_cast<int>(bias));
        const double defined = (h & 32768 ? -1 : 1) * scale * ((exponent ? 1 : 0) + mantissa / unit_size);
        CHECK(one == defined, "half %x is %g, not %g", h, one, defined);
        const auto narrow = [&](double value) { return brain ? narrow_bfloat16(value) : narrow_float16(value); };
        CHECK(narrow(one) == h, "half %x comes back as %x", h, narrow(one));
        const double step = scale / unit_size, sign = h & 32768 ? -1 : 1, middle = one + sign * step / 2;
        const uint16_t even = static_cast<uint16_t>(h & 1 ? h + 1 : h);
        CHECK(narrow(middle) == even, "midpoint after %x goes to %x", h, narrow(middle));
        const double below = std::nextafter(middle, one), above = std::nextafter(middle, sign * INFINITY);
        CHECK(narrow(below) == h, "just below the midpoint after %x: %x", h, narrow(below));
        CHECK(narrow(above) == static_cast<uint16_t>(h + 1), "just above the midpoint after %x: %x", h, narrow(above));
      }
    }
  }
}

}  // namespace

int main() {
  std::mt19937_64 random(1);
  for (int dtype = 0; dtype < 4; ++dtype) {
    for (int64_t n : {1, 2, 3, 5, 8, 13, 16, 17, 33, 66, 140}) {
      for (int64_t m : {0, 1, 31, 64, 65, 200}) {
        if (n > 40 && m > 65) continue;
        for (int64_t trim : {int64_t{0}, std::min<int64_t>(1, (n - 1) / 2), n / 10, n / 5, (n - 1) / 2}) {
          test_reduce(random, static_cast<Dtype>(dtype), n, m, trim, false, trim % 2, m % 2);
          test_reduce(random, static_cast<Dtype>(dtype), n, m, trim, true, m % 2, true);
        }
      }
    }
    test_bad_values(static_cast<Dtype>(dtype));
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{10, 1}, {20, 2}, {35, 3}, {70, 7}, {101, 10}})
      test_scattered_nan(random, static_cast<Dtype>(dtype), n, k);
  }
  test_reduce(random, Dtype::float32, 4, 300000, 1, false, false, false);  // large enough for several threads
  for (int64_t n : {1, 2, 5, 12}) {
    test_distances(random, n, 1037, true);
    test_distances(random, n, 20'011, false);
  }
  test_halves();
  test_files(random);
  std::printf("%ld checks, %d failures\n", checks, failures);
  return failures ? 1 : 0;
}
