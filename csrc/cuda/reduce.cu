#include <algorithm>
#include <cmath>
#include <numeric>

#include "launch.cuh"
#include "reduce.hpp"

namespace fedincentive {
namespace cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  throw Error(std::string(what) + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")");
}

OnDevice::OnDevice(int device) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "looking for CUDA devices");
  if (device < 0 || device >= count)
    throw Error("There is no CUDA device " + std::to_string(device) + "; this machine has " + std::to_string(count) +
                ".");
  check(cudaGetDevice(&previous_), "asking for the current CUDA device");
  check(cudaSetDevice(device), "choosing the CUDA device");
}

OnDevice::~OnDevice() { cudaSetDevice(previous_); }

void Findings::add(const Findings& other) {
  not_finite += other.not_finite;
  weightless += other.weightless;
  guilty.resize(std::max(guilty.size(), other.guilty.size()), false);
  for (size_t i = 0; i < other.guilty.size(); ++i) guilty[i] = guilty[i] || other.guilty[i];
}

namespace {

// Coordinates of one launch: few launches, little room for bounds.
constexpr int64_t kPiece = int64_t{1} << 22;
constexpr int64_t kAlign = 256;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class DeviceMemory {
 public:
  DeviceMemory(int64_t bytes, cudaStream_t stream) : stream_(stream) {
    check(cudaMallocAsync(&memory_, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream),
          "allocating device memory");
  }
  ~DeviceMemory() { cudaFreeAsync(memory_, stream_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  unsigned char* at(int64_t offset) const { return static_cast<unsigned char*>(memory_) + offset; }

 private:
  void* memory_ = nullptr;
  cudaStream_t stream_;
};

struct Piece {
  const Segment* segment;
  int64_t begin, size;
};

std::vector<Piece> divide(const Request& request) {
  std::vector<Piece> pieces;
  for (const Segment& segment : request.segments)
    for (int64_t at = 0; at < segment.size; at += kPiece)
      pieces.push_back({&segment, at, std::min(kPiece, segment.size - at)});
  return pieces;
}

// Where a client's values of a piece begin, for all pieces and clients.
std::vector<const void*> table_of(const Request& request, const std::vector<Piece>& pieces) {
  std::vector<const void*> table;
  for (const Piece& piece : pieces)
    for (int64_t i = 0; i < request.clients; ++i)
      table.push_back(static_cast<const unsigned char*>(piece.segment->pointers[i]) +
                      piece.begin * item_size(request.dtype));
  return table;
}

double default_divisor(const Request& request) {
  if (request.divisor != 0) return request.divisor;
  if (request.weights.empty()) return static_cast<double>(request.clients - 2 * request.trim);
  if (request.trim > 0) return 0;
  return std::accumulate(request.weights.begin(), request.weights.end(), 0.0);
}

int64_t bounds_size_of(const Request& request) {
  const bool weighted = !request.weights.empty();
  return request.dtype == Dtype::float64 ? bounds_size<Float64>(request.clients, request.trim, weighted)
                                         : bounds_size<Float32>(request.clients, request.trim, weighted);
}

// Offsets into the one block of device memory a reduction takes besides inputs and outputs.
struct Room {
  int64_t table, weights, bounds, tally, marks, end;

  Room(const Request& request, const std::vector<Piece>& pieces) {
    int64_t longest = 0, words = 0;
    for (const Piece& piece : pieces) {
      longest = std::max(longest, piece.size);
      words += (piece.size + 31) / 32;
    }
    table = 0;
    weights = table + aligned(static_cast<int64_t>(pieces.size()) * request.clients * 8);
    bounds = weights + aligned(static_cast<int64_t>(request.weights.size()) * 8);
    tally = bounds + 2 * aligned(bounds_size_of(request) * longest);
    marks = tally + aligned(16 + request.clients);
    end = marks + words * 4;
  }
};

}  // namespace

struct Reduction::State {
  Request request;
  cudaStream_t stream;
  std::vector<Piece> pieces;
  std::vector<const void*> table;
  Room room;
  DeviceMemory memory;

  State(const Request& from, cudaStream_t on)
      : request(from),
        stream(on),
        pieces(divide(request)),
        table(table_of(request, pieces)),
        room(request, pieces),
        memory(room.end, stream) {}
  ~State() { cudaStreamSynchronize(stream); }  // the table must outlive its copy

  void copy_in(int64_t offset, const void* from, size_t bytes) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(memory.at(offset), from, bytes, cudaMemcpyHostToDevice, stream), "copying to the device");
  }

  Tally tally() const {
    auto* counts = reinterpret_cast<unsigned long long*>(memory.at(room.tally));
    return {counts, counts + 1, memory.at(room.tally + 16)};
  }

  Job job_of(size_t index, int64_t first_word) const {
    const Piece& piece = pieces[index];
    const int64_t bounds = bounds_size_of(request);
    Job job = {};
    job.pointers =
        reinterpret_cast<const void* const*>(memory.at(room.table)) + static_cast<int64_t>(index) * request.clients;
    job.out = static_cast<unsigned char*>(piece.segment->out) + piece.begin * request.result_size();
    job.weights = request.weights.empty() ? nullptr : reinterpret_cast<const double*>(memory.at(room.weights));
    job.unusual = reinterpret_cast<uint32_t*>(memory.at(room.marks)) + first_word;
    job.low = bounds ? memory.at(room.bounds) : nullptr;
    job.high = bounds ? memory.at(room.bounds + aligned(bounds * piece.size)) : nullptr;
    job.size = piece.size;
    job.divisor = default_divisor(request);
    job.reciprocal = 1 / job.divisor;
    job.shrink = std::ldexp(1.0, -2 - std::ilogb(static_cast<double>(request.clients)));
    job.clients = static_cast<int32_t>(request.clients);
    job.trim = static_cast<int32_t>(request.trim);
    job.wide_output = request.wide_output;
    return job;
  }

  void enqueue() {
    copy_in(room.table, table.data(), table.size() * 8);
    copy_in(room.weights, request.weights.data(), request.weights.size() * 8);
    check(cudaMemsetAsync(memory.at(room.tally), 0, static_cast<size_t>(room.end - room.tally), stream),
          "clearing marks");
    constexpr decltype(&launch_float32) launchers[] = {launch_float32, launch_float64, launch_float16, launch_bfloat16};
    int64_t word = 0;
    for (size_t index = 0; index < pieces.size(); ++index) {
      launchers[static_cast<int>(request.dtype)](job_of(index, word), tally(),
                                                 table.data() + static_cast<int64_t>(index) * request.clients, stream);
      word += (pieces[index].size + 31) / 32;
    }
  }
};

Reduction::Reduction(const Request& request, cudaStream_t stream) : state_(new State(request, stream)) {
  state_->enqueue();
}

Reduction::~Reduction() = default;

Findings Reduction::finish() {
  std::vector<unsigned char> tally(static_cast<size_t>(16 + state_->request.clients));
  check(cudaMemcpyAsync(tally.data(), state_->memory.at(state_->room.tally), tally.size(), cudaMemcpyDeviceToHost,
                        state_->stream),
        "copying from the device");
  check(cudaStreamSynchronize(state_->stream), "running the kernels");
  Findings findings;
  std::memcpy(&findings.not_finite, tally.data(), 8);
  std::memcpy(&findings.weightless, tally.data() + 8, 8);
  findings.guilty.assign(tally.begin() + 16, tally.end());
  return findings;
}

}  // namespace cuda
}  // namespace fedincentive
