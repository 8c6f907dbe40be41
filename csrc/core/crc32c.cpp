#include "crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace fedincentive {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b contributes when k more bytes follow it, so that eight bytes are taken at a time.
Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const unsigned char* bytes, size_t size) {
  uint64_t value = 0xffffffff;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    value = _mm_crc32_u64(value, word);
  }
  uint32_t rest = static_cast<uint32_t>(value);
  for (; size > 0; ++bytes, --size) rest = _mm_crc32_u8(rest, *bytes);
  return ~rest;
}

// `chunk` is a multiple of 8.
__attribute__((target("sse4.2"))) void four_chunks_sse42(const unsigned char* bytes, size_t chunk, uint32_t* out) {
  uint64_t values[kChunksAtOnce];
  for (uint64_t& value : values) value = 0xffffffff;
  for (size_t at = 0; at < chunk; at += 8) {
    for (size_t k = 0; k < kChunksAtOnce; ++k) {
      uint64_t word;
      std::memcpy(&word, bytes + k * chunk + at, 8);
      values[k] = _mm_crc32_u64(values[k], word);
    }
  }
  for (size_t k = 0; k < kChunksAtOnce; ++k) out[k] = ~static_cast<uint32_t>(values[k]);
}
#endif

bool has_instruction() {
#if defined(__x86_64__)
  static const bool found = __builtin_cpu_supports("sse4.2");
  return found;
#else
  return false;
#endif
}

}  // namespace

uint32_t crc32c_portable(const void* data, size_t size) {
  static const Tables tables = make_tables();
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  uint32_t value = 0xffffffff;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint32_t next = 0;
    for (size_t k = 0; k < 8; ++k) {
      const uint32_t mixed = k < 4 ? (value >> (8 * k)) & 0xff : 0;
      next ^= tables[7 - k][bytes[k] ^ mixed];
    }
    value = next;
  }
  for (; size > 0; ++bytes, --size) value = (value >> 8) ^ tables[0][(value ^ *bytes) & 0xff];
  return ~value;
}

uint32_t crc32c(const void* data, size_t size) {
#if defined(__x86_64__)
  if (has_instruction()) return crc32c_sse42(static_cast<const unsigned char*>(data), size);
#endif
  return crc32c_portable(data, size);
}

void crc32c_chunks(const void* data, size_t size, size_t chunk, uint32_t* out) {
  const auto* bytes = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  for (; has_instruction() && chunk % 8 == 0 && size >= kChunksAtOnce * chunk; out += kChunksAtOnce) {
    four_chunks_sse42(bytes, chunk, out);
    bytes += kChunksAtOnce * chunk;
    size -= kChunksAtOnce * chunk;
  }
#endif
  for (; size > 0; ++out) {
    const size_t next = size < chunk ? size : chunk;
    *out = crc32c(bytes, next);
    bytes += next;
    size -= next;
  }
}

}  // namespace fedincentive
