// The yardstick of the benchmarks: a float32 mean with float32 sums, as fast as memory can be read. Long runs of a few
// clients at a time, asked for in advance, added up in registers. yardstick.py builds it for one instruction set.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int kVector = 64;
#elif defined(__AVX2__)
constexpr int kVector = 32;
#else
constexpr int kVector = 16;
#endif
constexpr int kLanes = kVector / 4, kLine = 16;  // floats in a vector, in a line of the cache
constexpr int kVectors = 4;                      // sums in registers
constexpr int kAhead = 1088 / 4;                 // floats: how far in advance a client's values are asked for
constexpr int64_t kSpan = 4096;                  // floats of each client at a time

typedef float Floats __attribute__((vector_size(kVector)));

inline Floats load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline void store(float* to, Floats value) { std::memcpy(to, &value, sizeof value); }

// sums += the values of all clients from `at` on, Group clients at a time
template <int Group>
void add(const float* const* from, int64_t clients, int64_t at, int64_t count, float* sums) {
  for (; clients >= Group; clients -= Group, from += Group) {
    int64_t t = 0;
    for (; t + kVectors * kLanes <= count; t += kVectors * kLanes) {
      for (int line = 0; line < kVectors * kLanes; line += kLine)
        for (int c = 0; c < Group; ++c) __builtin_prefetch(from[c] + at + t + line + kAhead);
      Floats totals[kVectors];
      for (int v = 0; v < kVectors; ++v) totals[v] = load(sums + t + v * kLanes);
      for (int c = 0; c < Group; ++c)
        for (int v = 0; v < kVectors; ++v) totals[v] += load(from[c] + at + t + v * kLanes);
      for (int v = 0; v < kVectors; ++v) store(sums + t + v * kLanes, totals[v]);
    }
    for (; t < count; ++t)
      for (int c = 0; c < Group; ++c) sums[t] += from[c][at + t];
  }
  if constexpr (Group > 1) add<Group / 2>(from, clients, at, count, sums);
}

void mean(const float* const* from, int64_t clients, int64_t begin, int64_t end, float* out) {
  const float scale = 1.0f / static_cast<float>(clients);
  alignas(64) float sums[kSpan];
  for (int64_t at = begin; at < end; at += kSpan) {
    const int64_t count = std::min(kSpan, end - at);
    std::memset(sums, 0, sizeof sums);
    add<8>(from, clients, at, count, sums);
    for (int64_t t = 0; t < count; ++t) out[at + t] = sums[t] * scale;
  }
}

}  // namespace

// Threads take chunks of about 4 MB of updates as they come free, as those of fedincentive do.
extern "C" void plain_mean(const float* const* from, int64_t clients, int64_t size, float* out, int64_t threads) {
  const int64_t length = std::max<int64_t>(1, (int64_t{1} << 20) / clients / kSpan) * kSpan;
  const int64_t chunks = (size + length - 1) / length;
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t chunk; (chunk = next.fetch_add(1)) < chunks;)
      mean(from, clients, chunk * length, std::min(size, (chunk + 1) * length), out);
  };
  std::vector<std::thread> helpers;
  try {
    for (int64_t worker = 1; worker < std::min(threads, chunks); ++worker) helpers.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads to be had: those there are do the work
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}
