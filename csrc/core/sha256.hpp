#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fedincentive {

constexpr size_t kDigest = 32;

// Takes whole blocks of 64 bytes into the state of eight words.
using Compress = void (*)(uint32_t* state, const unsigned char* blocks, size_t count);

// All ways this processor has, the slowest first: by definition, and by the processor's own instructions.
std::vector<Compress> sha256_ways();

// SHA-256 of bytes that come in parts.
class Sha256 {
 public:
  explicit Sha256(Compress compress) : compress_(compress) {}
  void add(const unsigned char* bytes, size_t size);
  void finish(unsigned char* digest);

 private:
  Compress compress_;
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char waiting_[64] = {};
  size_t size_ = 0;
};

}  // namespace fedincentive
