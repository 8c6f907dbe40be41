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
// The instruction takes three cycles and one can start in each, so four parts go at once and are put together after.
constexpr size_t kPart = 2048;

// What a remainder becomes when kPart zero bytes follow: a linear map, byte by byte of it.
using Shift = std::array<std::array<uint32_t, 256>, 4>;
Shift make_shift(const Tables& tables) {
  Shift shift{};
  for (uint32_t place = 0; place < 4; ++place) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      uint32_t value = 1u << (8 * place + bit);
      for (size_t i = 0; i < kPart; ++i) value = (value >> 8) ^ tables[0][value & 0xff];
      for (uint32_t byte = 0; byte < 256; ++byte)
        if (byte >> bit & 1) shift[place][byte] ^= value;
    }
  }
  return shift;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const unsigned char* bytes, size_t size) {
  static const Shift shift = make_shift(make_tables());
  uint64_t value = 0xffffffff;
  for (; size >= 4 * kPart; bytes += 4 * kPart, size -= 4 * kPart) {
    uint64_t values[4] = {value, 0, 0, 0};
    for (size_t at = 0; at < kPart; at += 8) {
      for (size_t part = 0; part < 4; ++part) {
        uint64_t word;
        std::memcpy(&word, bytes + part * kPart + at, 8);
        values[part] = _mm_crc32_u64(values[part], word);
      }
    }
    value = values[0];
    for (size_t part = 1; part < 4; ++part)
      value = values[part] ^ shift[0][value & 0xff] ^ shift[1][value >> 8 & 0xff] ^ shift[2][value >> 16 & 0xff] ^
              shift[3][value >> 24];
  }
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    value = _mm_crc32_u64(value, word);
  }
  uint32_t rest = static_cast<uint32_t>(value);
  for (; size > 0; ++bytes, --size) rest = _mm_crc32_u8(rest, *bytes);
  return ~rest;
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
  for (; size > 0; ++out) {
    const size_t next = size < chunk ? size : chunk;
    *out = crc32c(bytes, next);
    bytes += next;
    size -= next;
  }
}

}  // namespace fedincentive
