#include <algorithm>
#include <cstring>

#include "reduce.hpp"

namespace fedincentive {
namespace cuda {
namespace {

// Coordinates of a piece are rounded to this, so that every client's row is aligned.
constexpr int64_t kRow = 128;

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

// The same number of bytes on the device and in page-locked host memory, which alone is copied while kernels run.
class Buffers {
 public:
  explicit Buffers(int64_t bytes) {
    check(cudaMalloc(&device_, static_cast<size_t>(bytes)), "allocating device memory");
    const cudaError_t status = cudaMallocHost(&host_, static_cast<size_t>(bytes));
    if (status != cudaSuccess) cudaFree(device_);
    check(status, "allocating page-locked memory");
  }
  ~Buffers() {
    cudaFreeHost(host_);
    cudaFree(device_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  unsigned char* device(int64_t offset) const { return static_cast<unsigned char*>(device_) + offset; }
  unsigned char* host(int64_t offset) const { return static_cast<unsigned char*>(host_) + offset; }

 private:
  void* device_ = nullptr;
  void* host_ = nullptr;
};

// One of the two sets of buffers, with the piece that is under way in it.
class Lane {
 public:
  Lane(const Request& request, int64_t length)
      : request_(request),
        length_(length),
        inputs_(request.clients * length * item_size(request.dtype)),
        buffers_(inputs_ + length * request.result_size()) {}
  ~Lane() { cudaStreamSynchronize(stream_); }

  // The host's own copying here overlaps with the other lane's work on the device.
  void start(const Segment& segment, int64_t begin, int64_t size) {
    const int64_t item = item_size(request_.dtype);
    std::vector<const void*> pointers;
    for (int64_t i = 0; i < request_.clients; ++i) {
      const int64_t row = i * length_ * item;
      std::memcpy(buffers_.host(row), static_cast<const unsigned char*>(segment.pointers[i]) + begin * item,
                  static_cast<size_t>(size * item));
      pointers.push_back(buffers_.device(row));
    }
    check(cudaMemcpyAsync(buffers_.device(0), buffers_.host(0), static_cast<size_t>(inputs_), cudaMemcpyHostToDevice,
                          stream_),
          "copying to the device");
    Request piece = request_;
    piece.segments = {{pointers.data(), nullptr, size, buffers_.device(inputs_)}};
    reduction_.reset(new Reduction(piece, stream_));
    bytes_ = size * request_.result_size();
    out_ = static_cast<unsigned char*>(segment.out) + begin * request_.result_size();
    check(cudaMemcpyAsync(buffers_.host(inputs_), buffers_.device(inputs_), static_cast<size_t>(bytes_),
                          cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
  }

  // Waits for the piece under way, if any, and delivers its result.
  void finish(Findings& findings) {
    if (!reduction_) return;
    findings.add(reduction_->finish());
    reduction_.reset();
    std::memcpy(out_, buffers_.host(inputs_), static_cast<size_t>(bytes_));
  }

 private:
  const Request& request_;
  int64_t length_, inputs_;
  Buffers buffers_;
  Stream stream_;
  std::unique_ptr<Reduction> reduction_;
  void* out_ = nullptr;
  int64_t bytes_ = 0;
};

// Coordinates per piece: two lanes of inputs, result, bounds (at most 16 bytes), marks and tables stay within `memory`.
int64_t length_for(const Request& request, int64_t memory) {
  const int64_t bytes = request.clients * item_size(request.dtype) + request.result_size() + 17;
  const int64_t tables = 17 * request.clients + 2048;
  int64_t longest = 0;
  for (const Segment& segment : request.segments) longest = std::max(longest, segment.size);
  const int64_t fitting = (memory / 2 - tables) / bytes / kRow * kRow;
  if (fitting < kRow)
    throw Error("The device memory allowed, " + std::to_string(memory) + " bytes, is too little for " +
                std::to_string(request.clients) + " clients; allow at least " +
                std::to_string(2 * (bytes * kRow + tables)) + ".");
  return std::min(fitting, (longest + kRow - 1) / kRow * kRow);
}

}  // namespace

Findings reduce_from_host(const Request& request, int64_t memory) {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free device memory");
  Findings findings;
  const int64_t length = length_for(request, std::min<int64_t>(memory, static_cast<int64_t>(free / 10 * 9)));
  if (length == 0) return findings;
  Lane first(request, length), second(request, length);
  Lane* lanes[] = {&first, &second};
  for (const Segment& segment : request.segments) {
    for (int64_t at = 0; at < segment.size; at += length) {
      lanes[0]->finish(findings);
      lanes[0]->start(segment, at, std::min(length, segment.size - at));
      std::swap(lanes[0], lanes[1]);
    }
  }
  lanes[0]->finish(findings);
  lanes[1]->finish(findings);
  return findings;
}

}  // namespace cuda
}  // namespace fedincentive
