#include <algorithm>
#include <cstring>

#include "reduce.hpp"

namespace fedincentive {
namespace cuda {
namespace {

// Rows begin at multiples of this many bytes, a sector of device memory.
constexpr int64_t kSector = 32;

int64_t padded(int64_t bytes) { return (bytes + kSector - 1) / kSector * kSector; }

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Values of one array that a buffer should hold at least, or rows are too short to be worth a piece.
constexpr int64_t kLeastValues = 128;

// Page-locked host memory, which alone is copied while kernels run.
class HostMemory {
 public:
  explicit HostMemory(int64_t bytes) {
    check(cudaMallocHost(&memory_, static_cast<size_t>(bytes)), "allocating page-locked memory");
  }
  ~HostMemory() { cudaFreeHost(memory_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  unsigned char* at(int64_t offset) const { return static_cast<unsigned char*>(memory_) + offset; }

 private:
  void* memory_ = nullptr;
};

// A part of an array that goes to the device at once with others.
struct Part {
  const Segment* segment;
  int64_t begin, size;
};

// What `size` values of an array take of a buffer: the clients' rows and the results.
int64_t buffer_bytes(const Request& request, int64_t size) {
  return request.clients * padded(size * item_size(request.dtype)) + padded(size * request.result_size());
}

// The most a workspace can take for values that fill a buffer: the arrays of a piece are at most kMostArrays.
constexpr int64_t kMostArrays = 256;
int64_t workspace_bytes(const Request& request, int64_t buffer) {
  const int64_t item = request.clients * item_size(request.dtype) + request.result_size();
  const std::vector<const void*> clients(static_cast<size_t>(request.clients));
  Request worst = request;
  worst.segments.assign(std::min<size_t>(request.segments.size(), kMostArrays), {clients.data(), nullptr, 1, nullptr});
  if (!worst.segments.empty()) worst.segments[0].size = buffer / item + 1;
  return padded(workspace_size(worst));
}

// Arrays, whole or in parts, that fill a buffer as far as possible.
std::vector<std::vector<Part>> pack(const Request& request, int64_t buffer) {
  std::vector<std::vector<Part>> pieces;
  int64_t room = 0;
  for (const Segment& segment : request.segments) {
    for (int64_t at = 0; at < segment.size;) {
      if (pieces.empty() || room < buffer_bytes(request, std::min(segment.size - at, kLeastValues)) ||
          static_cast<int64_t>(pieces.back().size()) == kMostArrays) {
        pieces.emplace_back();
        room = buffer;
      }
      int64_t size = segment.size - at;
      if (buffer_bytes(request, size) > room) {
        const int64_t item = request.clients * item_size(request.dtype) + request.result_size();
        size = std::max<int64_t>(1, (room - (request.clients + 1) * kSector) / item);
      }
      pieces.back().push_back({&segment, at, size});
      room -= buffer_bytes(request, size);
      at += size;
    }
  }
  return pieces;
}

// One of the two sets of buffers, with the piece that is under way in it.
class Lane {
 public:
  Lane(const Request& request, int64_t buffer, unsigned char* device)
      : request_(request), buffer_(buffer), device_(device), host_(buffer) {}
  ~Lane() { cudaStreamSynchronize(stream_); }

  // The host's own copying here overlaps with the other lane's work on the device.
  void start(const std::vector<Part>& parts) {
    const int64_t item = item_size(request_.dtype), clients = request_.clients;
    parts_ = &parts;
    results_ = 0;
    for (const Part& part : parts) results_ += clients * padded(part.size * item);
    pointers_.clear();
    pointers_.reserve(parts.size() * static_cast<size_t>(clients));
    Request piece = request_;
    piece.segments.clear();
    int64_t row = 0, result = results_;
    for (const Part& part : parts) {
      for (int64_t i = 0; i < clients; ++i, row += padded(part.size * item)) {
        std::memcpy(host_.at(row), static_cast<const unsigned char*>(part.segment->pointers[i]) + part.begin * item,
                    static_cast<size_t>(part.size * item));
        pointers_.push_back(device_ + row);
      }
      piece.segments.push_back({pointers_.data() + pointers_.size() - clients, nullptr, part.size, device_ + result});
      result += padded(part.size * request_.result_size());
    }
    check(cudaMemcpyAsync(device_, host_.at(0), static_cast<size_t>(results_), cudaMemcpyHostToDevice, stream_),
          "copying to the device");
    reduction_.reset(new Reduction(piece, stream_, device_ + buffer_));
    check(cudaMemcpyAsync(host_.at(results_), device_ + results_, static_cast<size_t>(result - results_),
                          cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
  }

  // Waits for the piece under way, if any, and delivers its results.
  void finish(Findings& findings) {
    if (!reduction_) return;
    findings.add(reduction_->finish());
    reduction_.reset();
    int64_t result = results_;
    for (const Part& part : *parts_) {
      const int64_t bytes = part.size * request_.result_size();
      std::memcpy(static_cast<unsigned char*>(part.segment->out) + part.begin * request_.result_size(),
                  host_.at(result), static_cast<size_t>(bytes));
      result += padded(bytes);
    }
  }

 private:
  const Request& request_;
  int64_t buffer_, results_ = 0;
  unsigned char* device_;
  HostMemory host_;
  Stream stream_;
  std::vector<const void*> pointers_;
  const std::vector<Part>* parts_ = nullptr;
  std::unique_ptr<Reduction> reduction_;
};

}  // namespace

HostReduction::HostReduction(const Request& request, int64_t memory) : request_(request) {
  int64_t wanted = 0;
  for (const Segment& segment : request.segments) wanted += buffer_bytes(request, segment.size);
  const int64_t least = buffer_bytes(request, kLeastValues);
  buffer_ = padded(std::max(least, std::min(wanted, memory / 2)));
  workspace_ = workspace_bytes(request, buffer_);
  while (device_bytes() > memory && buffer_ > least) {
    buffer_ = std::max(least, padded(buffer_ / 8 * 7));
    workspace_ = workspace_bytes(request, buffer_);
  }
  if (device_bytes() > memory && wanted > 0)
    throw Error("The device memory allowed, " + std::to_string(memory) + " bytes, is too little for " +
                std::to_string(request.clients) + " clients; allow at least " +
                std::to_string(2 * (least + workspace_bytes(request, least))) + ".");
}

int64_t HostReduction::device_bytes() const { return 2 * (buffer_ + workspace_); }

Findings HostReduction::run(void* device_memory) const {
  Findings findings;
  const std::vector<std::vector<Part>> pieces = pack(request_, buffer_);
  if (pieces.empty()) return findings;
  auto* memory = static_cast<unsigned char*>(device_memory);
  Lane first(request_, buffer_, memory), second(request_, buffer_, memory + buffer_ + workspace_);
  Lane* lanes[] = {&first, &second};
  for (const std::vector<Part>& parts : pieces) {
    lanes[0]->finish(findings);
    lanes[0]->start(parts);
    std::swap(lanes[0], lanes[1]);
  }
  lanes[0]->finish(findings);
  lanes[1]->finish(findings);
  return findings;
}

}  // namespace cuda
}  // namespace fedincentive
