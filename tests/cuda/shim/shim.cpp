#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "cuda_runtime.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

struct ShimStream {
  std::deque<std::function<void()>> work;
};

namespace {

constexpr unsigned char kRubbish = 0xa5;
constexpr size_t kStack = 64 * 1024;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "CUDA shim: %s\n", what);
  std::abort();
}

long setting(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : otherwise;
}

// --- threads ---------------------------------------------------------------------------------------------------------

enum class Fiber { ready, at_block_barrier, at_warp_barrier, done };

// A place to go on from. swapcontext makes two system calls each time, so it is used to start a fiber only, or always
// under AddressSanitizer, which understands no other way to change stacks.
struct Place {
  ucontext_t context;
  jmp_buf jump;
  bool started = false;
};

void go(Place& from, Place& to) {
#ifdef __SANITIZE_ADDRESS__
  swapcontext(&from.context, &to.context);
#else
  from.started = true;
  if (_setjmp(from.jump)) return;
  if (to.started) _longjmp(to.jump, 1);
  setcontext(&to.context);
#endif
}

struct Block {
  std::vector<Fiber> states;
  std::vector<Place> places;
  std::vector<std::unique_ptr<char[]>> stacks;
  std::vector<unsigned> order;
  std::vector<uint64_t> slots;     // two per thread, used in turn
  std::vector<unsigned> shuffles;  // how many a thread has begun
  Place scheduler;
  unsigned current = 0;
  const std::function<void()>* thread = nullptr;
};

Block block;
std::unique_ptr<unsigned char[]> shared;
std::FILE* load_log = nullptr;
bool in_fibers = false;

void run_fiber() {
  (*block.thread)();
  block.states[block.current] = Fiber::done;
  go(block.places[block.current], block.scheduler);
}

void wait_at(Fiber where) {
  if (!in_fibers) fail("a barrier or shuffle in a kernel launched without shared memory");
  const unsigned self = block.current;
  block.states[self] = where;
  go(block.places[self], block.scheduler);
}

// Lets everybody in [begin, end) go on if all of them wait at `where`.
bool release(Fiber where, unsigned begin, unsigned end) {
  for (unsigned t = begin; t < end; ++t)
    if (block.states[t] != where) return false;
  for (unsigned t = begin; t < end; ++t) block.states[t] = Fiber::ready;
  return true;
}

void shuffle_order(unsigned threads) {
  static uint32_t state = static_cast<uint32_t>(setting("FEDINCENTIVE_SHIM_SEED", 1));
  block.order.resize(threads);
  for (unsigned t = 0; t < threads; ++t) block.order[t] = t;
  for (unsigned t = threads; t > 1; --t) {
    state = state * 1664525u + 1013904223u;
    std::swap(block.order[t - 1], block.order[(state >> 8) % t]);
  }
}

void start_fibers(unsigned threads) {
  block.states.assign(threads, Fiber::ready);
  block.places.resize(threads);
  block.slots.assign(2 * threads, 0);
  block.shuffles.assign(threads, 0);
  while (block.stacks.size() < threads) block.stacks.emplace_back(new char[kStack]);
  for (unsigned t = 0; t < threads; ++t) {
    ucontext_t& context = block.places[t].context;
    block.places[t].started = false;
    getcontext(&context);
    context.uc_stack.ss_sp = block.stacks[t].get();
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    makecontext(&context, run_fiber, 0);
  }
}

void run_fibers(unsigned threads) {
  start_fibers(threads);
  shuffle_order(threads);
  in_fibers = true;
  for (;;) {
    bool moved = false, all_done = true;
    for (unsigned t : block.order) {
      if (block.states[t] == Fiber::ready) {
        moved = true;
        block.current = t;
        threadIdx.x = t;
        go(block.scheduler, block.places[t]);
      }
      all_done = all_done && block.states[t] == Fiber::done;
    }
    if (all_done) break;
    for (unsigned warp = 0; warp < threads; warp += 32)
      moved = release(Fiber::at_warp_barrier, warp, std::min(warp + 32, threads)) || moved;
    moved = release(Fiber::at_block_barrier, 0, threads) || moved;
    if (!moved) fail("some threads wait at a barrier that others never reach");
  }
  in_fibers = false;
}

// --- memory ----------------------------------------------------------------------------------------------------------

std::map<void*, size_t> allocations;
size_t used = 0;

size_t capacity() { return static_cast<size_t>(setting("FEDINCENTIVE_SHIM_MEMORY", 1L << 30)); }

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  std::memset(memory, kRubbish, bytes);
  return memory;
}

thread_local int current_device = 0;
std::set<int> contexts;  // devices that have one

// As CUDA 12 and later do: choosing a device makes its context.
void make_context() {
  if (contexts.insert(current_device).second) shim::note("context", current_device);
}

ShimStream default_stream;
ShimStream& of(cudaStream_t stream) { return stream ? *stream : default_stream; }

void drain(ShimStream& stream) {
  while (!stream.work.empty()) {
    const std::function<void()> work = std::move(stream.work.front());
    stream.work.pop_front();
    work();
  }
}

}  // namespace

namespace fedincentive {
namespace cuda {
unsigned char* shared_memory() { return shared.get(); }
}  // namespace cuda
}  // namespace fedincentive

namespace shim {

void enqueue(cudaStream_t stream, std::function<void()> work) { of(stream).work.push_back(std::move(work)); }

void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  block.thread = &thread;
  const char* log = std::getenv("FEDINCENTIVE_SHIM_LOADS");
  load_log = log ? std::fopen(log, "ab") : nullptr;
  for (unsigned b = 0; b < config.gridDim.x; ++b) {
    blockIdx.x = b;
    shared.reset(new unsigned char[config.dynamicSmemBytes]);
    std::memset(shared.get(), kRubbish, config.dynamicSmemBytes);
    if (config.dynamicSmemBytes > 0) {
      run_fibers(config.blockDim.x);
      continue;
    }
    for (unsigned t = 0; t < config.blockDim.x; ++t) {
      threadIdx.x = t;
      thread();
    }
  }
  if (load_log) std::fclose(load_log);
  load_log = nullptr;
}

void note_load(const void* from) {
  if (!load_log) return;
  const uint64_t entry[2] = {uint64_t{blockIdx.x} * blockDim.x + threadIdx.x, reinterpret_cast<uint64_t>(from)};
  std::fwrite(entry, sizeof entry, 1, load_log);
}

void note(const char* what, long long amount) {
  const char* log = std::getenv("FEDINCENTIVE_SHIM_CALLS");
  if (!log) return;
  std::FILE* file = std::fopen(log, "a");
  std::fprintf(file, "%s %lld\n", what, amount);
  std::fclose(file);
}

void block_barrier() { wait_at(Fiber::at_block_barrier); }

// Two slots in turn: a lane can only be one shuffle ahead of the others, so what they still read is not overwritten.
void exchange_lanes(void* value, size_t bytes, unsigned partner) {
  if (!in_fibers) fail("a shuffle in a kernel launched without shared memory");
  const unsigned self = block.current, turn = block.shuffles[self]++ % 2;
  std::memcpy(&block.slots[2 * self + turn], value, bytes);
  wait_at(Fiber::at_warp_barrier);
  std::memcpy(value, &block.slots[2 * (self / 32 * 32 + partner) + turn], bytes);
}

}  // namespace shim

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t status) {
  return status == cudaErrorMemoryAllocation     ? "out of memory"
         : status == cudaErrorNoDevice           ? "no device"
         : status == cudaErrorInsufficientDriver ? "CUDA driver version is insufficient for CUDA runtime version"
                                                 : "invalid";
}
const char* cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorMemoryAllocation     ? "cudaErrorMemoryAllocation"
         : status == cudaErrorNoDevice           ? "cudaErrorNoDevice"
         : status == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
                                                 : "cudaErrorInvalidValue";
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = static_cast<int>(setting("FEDINCENTIVE_SHIM_DRIVER", 13000)), cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(setting("FEDINCENTIVE_SHIM_DEVICES", 1));
  if (setting("FEDINCENTIVE_SHIM_DRIVER", 13000) < 13000) return cudaErrorInsufficientDriver;
  return *count ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  make_context();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "simulated on the CPU");
  properties->totalGlobalMem = capacity();
  properties->major = 8;
  properties->minor = 6;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 0, cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = capacity();
  *free = *total - used;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  make_context();
  shim::note("allocate", static_cast<long long>(bytes));
  if (used + bytes > capacity()) return cudaErrorMemoryAllocation;
  *memory = allocate(bytes);
  allocations[*memory] = bytes;
  used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const auto found = allocations.find(memory);
  if (found == allocations.end()) fail("freeing device memory that was never allocated");
  used -= found->second;
  allocations.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) { return *memory = allocate(bytes), cudaSuccess; }
cudaError_t cudaFreeHost(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  shim::note(kind == cudaMemcpyHostToDevice ? "to" : "from", static_cast<long long>(bytes));
  shim::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  shim::enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return *stream = new ShimStream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  drain(*stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return drain(of(stream)), cudaSuccess; }
