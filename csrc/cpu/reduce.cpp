#include "reduce.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>

#include "../core/plan.hpp"
#include "../core/sorting.hpp"
#include "dispatch.hpp"

namespace fedincentive {

int64_t scratch_bytes(int64_t wires) {  // see Scratch in scratch.inl
  const int64_t rows = 7 + std::max<int64_t>(wires, 2 * kMaxStreamed);
  return (kGroup + 2) * kSpan * 8 + kSpan * 2 + rows * kTileBytes;
}

void gather(const void* base, const Layout& layout, int64_t item, int64_t begin, int64_t count, void* to) {
  int64_t index[kMaxDims];
  int64_t rest = begin, offset = 0;
  for (int d = layout.dims - 1; d >= 0; --d) {
    index[d] = rest % layout.shape[d];
    rest /= layout.shape[d];
    offset += index[d] * layout.strides[d];
  }
  auto* out = static_cast<unsigned char*>(to);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * item, static_cast<const unsigned char*>(base) + offset, static_cast<size_t>(item));
    for (int d = layout.dims - 1; d >= 0; --d) {
      offset += layout.strides[d];
      if (++index[d] < layout.shape[d]) break;
      offset -= layout.strides[d] * layout.shape[d];
      index[d] = 0;
    }
  }
}

namespace {

// A part of one array, or several small arrays whole: those that are read in place, and those that lie side by side in
// one tile then.
struct Chunk {
  const Segment* segment;
  int64_t begin, end;
  std::vector<const Segment*> packed, in_place;
};

// Whether kernels read a small array where it lies: it is a whole number of their steps.
bool fills_tiles(const Request& request, const Segment& segment) {
  const bool sorted = request.trim > 0 || request.share > 0;
  const int64_t lane = request.dtype == Dtype::float64 ? 8 : 4;
  return !segment.layouts && segment.size > 0 && segment.size % (sorted ? kTileBytes / lane : 64) == 0;
}
constexpr int64_t kPackedBytes = int64_t{16} << 20;
constexpr int64_t kPatience = kSpan;  // coordinates of a chunk: all of a small update, few of a large one

// Chunks depend on the data alone, never on the number of threads. About 4 MB each, so that handing them out costs
// nothing, and a multiple of every tile.
std::vector<Chunk> divide(const Request& request) {
  const int64_t bytes = std::max<int64_t>(request.clients, 1) * item_size(request.dtype);
  const int64_t length = std::max<int64_t>(1, (int64_t{4} << 20) / bytes / kSpan) * kSpan;
  const int64_t most = std::min<int64_t>(kSpan, kPackedBytes / bytes);  // values that are packed together
  std::vector<Chunk> chunks;
  Chunk small{nullptr, 0, 0, {}, {}};
  int64_t values = 0;  // of the small chunk
  for (const Segment& segment : request.segments) {
    if (segment.size <= most / 4) {
      if (values + segment.size > most) {
        chunks.push_back(std::move(small));
        small = Chunk{nullptr, 0, 0, {}, {}};
        values = 0;
      }
      values += segment.size;
      if (fills_tiles(request, segment)) {
        small.in_place.push_back(&segment);
      } else {
        small.packed.push_back(&segment);
        small.end += segment.size;
      }
    } else {
      for (int64_t at = 0; at < segment.size; at += length)
        chunks.push_back({&segment, at, std::min(segment.size, at + length), {}, {}});
    }
  }
  if (small.packed.size() == 1 && small.in_place.empty()) small = Chunk{small.packed[0], 0, small.end, {}, {}};
  if (values > 0) chunks.push_back(std::move(small));
  return chunks;
}

struct FreeAligned {
  void operator()(unsigned char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, FreeAligned>;

Memory allocate(int64_t bytes) {
  void* memory = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
  if (!memory) throw std::bad_alloc();
  return Memory(static_cast<unsigned char*>(memory));
}

// The values of all arrays of a chunk, client after client, and room for their results.
class Packed {
 public:
  Packed(const Request& request, const Chunk& chunk)
      : item_(item_size(request.dtype)),
        out_item_(request.wide_output ? 8 : item_),
        memory_(allocate((request.clients * item_ + out_item_) * chunk.end)) {
    unsigned char* to = memory_.get();
    for (int64_t client = 0; client < request.clients; ++client) {
      pointers_.push_back(to);
      for (const Segment* segment : chunk.packed) {
        const Layout* layout = segment->layouts ? segment->layouts[client] : nullptr;
        if (layout)
          gather(segment->pointers[client], *layout, item_, 0, segment->size, to);
        else if (segment->size > 0)
          std::memcpy(to, segment->pointers[client], static_cast<size_t>(segment->size * item_));
        to += segment->size * item_;
      }
    }
    segment_ = {pointers_.data(), nullptr, chunk.end, to};
  }
  const Segment& segment() const { return segment_; }
  void hand_out(const Chunk& chunk) const {
    const auto* from = static_cast<const unsigned char*>(segment_.out);
    for (const Segment* segment : chunk.packed) {
      if (segment->size > 0) std::memcpy(segment->out, from, static_cast<size_t>(segment->size * out_item_));
      from += segment->size * out_item_;
    }
  }

 private:
  int64_t item_, out_item_;
  Memory memory_;
  std::vector<const void*> pointers_;
  Segment segment_{};
};

// A thread costs some tens of microseconds: worth it from about a megabyte of updates each.
int64_t useful_threads(const Request& request) {
  int64_t bytes = 0;
  for (const Segment& segment : request.segments) bytes += segment.size * request.clients * item_size(request.dtype);
  return std::max<int64_t>(1, std::min(request.threads, bytes >> 19));
}

double default_divisor(const Request& request) {
  if (request.divisor != 0) return request.divisor;
  if (request.weights.empty()) return static_cast<double>(request.clients - 2 * request.trim);
  if (request.trim > 0 || request.share > 0) return 0;
  return std::accumulate(request.weights.begin(), request.weights.end(), 0.0);
}

// With so many clients the share is passed even by the lightest, and with rounding to spare.
int64_t clients_past(double share, std::vector<double> weights) {
  std::sort(weights.begin(), weights.end());
  double passed = 0;
  size_t number = 0;
  while (number < weights.size() && passed <= share + 1e-5) passed += weights[number++];
  return static_cast<int64_t>(number);
}

}  // namespace

Findings reduce(const Request& request, const Kernels& kernels) {
  const std::vector<Chunk> chunks = divide(request);
  const int64_t threads = useful_threads(request);
  const bool searched = request.share > 0 || cut_by_search(request.clients, request.trim);
  const std::shared_ptr<const Plan> plan =
      request.trim > 0 && !searched ? plan_for(request.clients, request.trim) : nullptr;
  const int64_t bytes = scratch_bytes(plan ? plan->wires : searched ? request.clients : 0);
  const int64_t past_share = request.share > 0 ? clients_past(request.share, request.weights) : 0;
  std::vector<Memory> scratch;
  for (int64_t worker = 0; worker < threads; ++worker) scratch.push_back(allocate(bytes));

  Findings findings;
  std::vector<unsigned char> guilty(static_cast<size_t>(request.clients), 0);
  std::atomic<bool> found{false};
  std::mutex mutex;
  run_parallel(static_cast<int64_t>(chunks.size()), threads, [&](int64_t worker, int64_t item) {
    const Chunk& chunk = chunks[static_cast<size_t>(item)];
    if (request.stop_early && found) {
      const std::lock_guard<std::mutex> lock(mutex);
      findings.stopped = true;
      return;
    }
    std::vector<unsigned char> here(guilty.size(), 0);
    Unusual unusual{0, 0, request.stop_early ? here.data() : nullptr, request.stop_early ? kPatience : INT64_MAX,
                    false};
    TileJob job{};
    job.dtype = request.dtype;
    std::optional<Packed> packed;
    if (chunk.end > 0 && !chunk.segment) packed.emplace(request, chunk);
    if (plan) job.plan = plan->view();
    job.clients = request.clients;
    job.trim = request.trim;
    job.weights = request.weights.empty() ? nullptr : request.weights.data();
    job.divisor = default_divisor(request);
    job.share = request.share;
    job.past_share = past_share;
    job.shrink = 1;
    job.wide_output = request.wide_output;
    job.scratch = scratch[static_cast<size_t>(worker)].get();
    job.unusual = &unusual;
    const auto run = [&](const Segment& segment, int64_t begin, int64_t end) {
      job.segment = segment;
      (request.dtype == Dtype::float64 ? kernels.reduce_wides : kernels.reduce_singles)(job, begin, end);
    };
    for (const Segment* segment : chunk.in_place) run(*segment, 0, segment->size);
    if (packed || chunk.segment) run(packed ? packed->segment() : *chunk.segment, chunk.begin, chunk.end);
    if (packed) packed->hand_out(chunk);
    if (unusual.not_finite || unusual.weightless) {
      found = true;
      const std::lock_guard<std::mutex> lock(mutex);
      findings.not_finite += unusual.not_finite;
      findings.weightless += unusual.weightless;
      findings.stopped |= unusual.stopped;
      for (size_t i = 0; i < guilty.size(); ++i) guilty[i] |= here[i];
    }
  });
  for (size_t i = 0; i < guilty.size(); ++i)
    if (guilty[i]) findings.clients.push_back(static_cast<int64_t>(i));
  return findings;
}

}  // namespace fedincentive
